# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""curl: cases of its Perl suite, by keyword. Its servers (sws, sockfilt, the FTP, IMAP, POP3 and SMTP
servers in Perl) and curl, all built from the source, run under xsock; HTTPS goes through stunnel."""
import re

import suite

CASE = re.compile(r"^test (\d{4})\.\.\.(.*(?:\n(?!test \d{4}|TEST).*)*)", re.M)
# Numbers of cases, taken by hundreds: what their keywords say is in the names of the groups.
GROUPS = {
    "http 1-100": "1 to 100", "ftp 100-300": "100 to 300", "https 300-400": "300 to 400",
    "ftps 400-500": "400 to 500", "libcurl 500-700": "500 to 700", "mail 800-1000": "800 to 1000",
    "all 1000-1300": "1000 to 1300", "multi 1500-1600": "1500 to 1600",
}
# No sockets, or other ones.
LEFT_OUT = ("!unit", "!SCP", "!SFTP", "!TFTP", "!RTSP", "!FILE", "!DICT", "!TELNET", "!flaky",
            "!unix-sockets", "!SMB", "!MQTT", "!GOPHER")


class Curl(suite.Suite):
    package = "curl"
    carried = 500
    group_limit_s = 2400
    recipe = ("./configure --with-openssl --enable-debug=no --disable-shared --enable-static"
              " --disable-ldap --disable-manual --without-brotli --without-zstd --without-libpsl"
              " --without-librtmp --without-libidn2 --without-nghttp2 --disable-dependency-tracking",
              "make -j 2 -C lib", "make -j 2 -C src", "make -j 2 -C tests/server",
              "make -j 2 -C tests/libtest", "make -C tests certs || make -C tests/certs")

    def groups(self):
        return list(GROUPS)

    def run(self, prefix, group):
        # -a: goes on behind a failure; -p would print the logs of it.
        _, output = self.call([*prefix, "perl", "-I.", "./runtests.pl", "-a", "-n", "-r",
                               *LEFT_OUT, *GROUPS[group].split()], cwd=self.place / "source/tests",
                              environment={"srcdir": "."})
        cases = {}
        for number, said in CASE.findall(output):
            if "OK (" in said:
                cases[number] = suite.PASSED
            elif "SKIPPED" in said:
                cases[number] = suite.SKIPPED
            else:
                cases[number] = suite.FAILED
        if "TESTDONE" not in output:
            cases[suite.END] = suite.FAILED
        return suite.Ran(cases, output)


SUITE = Curl
