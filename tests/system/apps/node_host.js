// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What node does to sockets and processes: an HTTP server and clients, raw TCP with half-close, a
// child with pipes, a worker that is handed the listening socket over IPC.
'use strict';
const assert = require('assert');
const child_process = require('child_process');
const cluster = require('cluster');
const http = require('http');
const net = require('net');

function get(options) {
    return new Promise((resolve, reject) => {
        http.get(options, (response) => {
            const parts = [];
            response.on('data', (part) => parts.push(part));
            response.on('end', () => resolve(Buffer.concat(parts)));
        }).on('error', reject);
    });
}

const listening = (server) => new Promise((resolve) =>
    server.listen(0, '127.0.0.1', () => resolve(server.address().port)));

async function main() {
    const body = Buffer.alloc(300000, 'x');
    const server = http.createServer((request, response) => response.end(body));
    const port = await listening(server);
    const agent = new http.Agent({keepAlive: true, maxSockets: 16});
    for (let round = 0; round < 20; round++) {
        const all = await Promise.all(Array.from({length: 16},
            () => get({host: '127.0.0.1', port, agent})));
        for (const got of all) assert.ok(got.equals(body));
    }
    agent.destroy();
    server.close();

    // Everything that was sent comes back after our FIN.
    const echo = net.createServer({allowHalfOpen: true}, (s) => s.pipe(s));
    const socket = net.connect(await listening(echo), '127.0.0.1');
    let bytes = 0;
    socket.on('data', (part) => { bytes += part.length; });
    for (let i = 0; i < 100; i++) socket.write(Buffer.alloc(40000, i));
    socket.end();
    await new Promise((resolve) => socket.on('close', resolve));
    assert.strictEqual(bytes, 4000000);
    echo.close();

    const child = child_process.spawnSync('cat', {input: body, maxBuffer: 1 << 24});
    assert.ok(child.stdout.equals(body));

    const worker = cluster.fork();
    const address = await new Promise((resolve) => cluster.on('listening', (w, a) => resolve(a)));
    assert.strictEqual((await get({host: '127.0.0.1', port: address.port})).toString(), 'worker');
    worker.kill();
}

if (cluster.isWorker) {
    http.createServer((request, response) => response.end('worker')).listen(0, '127.0.0.1');
} else {
    main().then(() => process.exit(0), (e) => { console.error(e); process.exit(1); });
}
