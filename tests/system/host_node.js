// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs in node under host_shim: the engine works in node's process, alone and beside node's own
// timers and HTTP, and node goes on working.
'use strict';
const assert = require('assert');
const fs = require('fs');
const http = require('http');
const os = require('os');

const EXCHANGE = 1000000001, BEGIN = 1000000002, END = 1000000003, WELL = 7;
const REQUESTS = 200;

const timer = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const get = (port, path) => new Promise((resolve, reject) => {
    http.get({ host: '127.0.0.1', port, path }, (response) => {
        let body = '';
        response.on('data', (data) => { body += data; });
        response.on('end', () => resolve(body));
    }).on('error', reject);
});

async function main() {
    assert.strictEqual(os.getPriority(EXCHANGE), WELL);
    assert.strictEqual(os.getPriority(BEGIN), WELL);
    const server = http.createServer((request, response) => {
        setTimeout(() => response.end('you asked for ' + request.url), 1);
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    for (let i = 0; i < REQUESTS; i++) {
        const path = '/' + i;
        assert.strictEqual(await get(server.address().port, path), 'you asked for ' + path);
    }
    const begin = process.hrtime.bigint();
    await timer(50);
    assert(process.hrtime.bigint() - begin >= 49000000n);
    assert.strictEqual(os.getPriority(EXCHANGE), WELL);
    assert.strictEqual(os.getPriority(END), WELL);
    server.close();
    os.getPriority(0); // the real one still answers
    // Two libuvs: the engine's is the shared library, node has its own (or shares it).
    const maps = fs.readFileSync('/proc/self/maps', 'latin1');
    assert(maps.includes('libuv.so.1'), 'the engine did not bring its libuv');
    assert(maps.includes('libxsock-engine.so'), 'the engine is not here');
    console.log(`node ${process.version} with libuv ${process.versions.uv}: ` +
                `${REQUESTS} requests beside the engine`);
}
main().catch((error) => { console.error(error); process.exit(1); });
