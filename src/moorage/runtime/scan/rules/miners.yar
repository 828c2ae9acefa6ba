// Programs that mine coins on the visitor's machine. Articles about them contain the same names and code samples, so a
// rule requires the code in a place where a browser runs it, not where it is displayed.

rule miner_hosted
{
    meta:
        id = "miner-hosted"
        why = "loads a coin miner from a known mining service"

    strings:
        $tag = /<script\b[^<>]{0,200}\ssrc\s*=\s*["']?(https?:)?\/\/([a-z0-9-]{1,40}\.){0,3}(coinhive\.com|coin-hive\.com|authedmine\.com|crypto-loot\.(com|org)|cryptoloot\.pro|webminepool\.(com|tk)|coinimp\.com|coinimp\.net|minero\.(cc|pw)|monerominer\.rocks|jsecoin\.com|webmine\.(cz|pro)|ppoi\.org|coinpot\.co|coin-have\.com|deepminer\.net|minr\.pw|hashing\.win|freecontent\.(stream|date|bid)|browsermine\.com|cryptonoter\.com|mineralt\.io|gridcash\.net|coinnebula\.com|afminer\.com)\/[^"'\s>]{0,200}["'\s>]/ nocase

    condition:
        is_page and $tag
}

rule miner_started
{
    meta:
        id = "miner-started"
        why = "starts a coin miner in the visitor's browser"

    strings:
        $client = /\bnew\s+(CoinHive\.(Anonymous|User|Token)|CRLT\.(Anonymous|User)|CryptoLoot\.(Anonymous|User)|WMP\.(Anonymous|User)|Client\.(Anonymous|User)|deepMiner\.(Anonymous|User|Init)|CoinImp\.(Anonymous|User)|Minero\.(Anonymous|User))\(\s*["'][A-Za-z0-9_-]{1,128}["']/
        $inline = /<script(\s+(type=["']text\/javascript["']|defer|async)){0,2}\s*>[^<]{0,400}\bnew\s+(CoinHive|CRLT|CryptoLoot|WMP|deepMiner|CoinImp|Minero)\.(Anonymous|User|Token|Init)\(/
        $start = /\.start\(/
        // Documentation generators compile pages into scripts.
        $compiled1 = "_jsx"
        $compiled2 = "createElement"
        $compiled3 = "mdxType"

    condition:
        $start and ((is_page and $inline) or (is_javascript and $client and filesize < 8KB and none of ($compiled*)))
}

rule miner_library
{
    meta:
        id = "miner-library"
        why = "is a coin miner for browsers"

    strings:
        $known1 = "CRYPTONIGHT_WORKER_BLOB"
        $known2 = /\bCoinHive\.CONFIG\s*=/
        $known3 = /\bwindow\.deepMiner\s*=|\bdeepMiner\.CONFIG\s*=/
        $algorithm = /cryptonight|randomx|\bcn_slow_hash\b|yespower|ghostrider/ nocase
        $socket = /new\s+WebSocket\(/
        $worker = /new\s+Worker\(/
        $job1 = "job_id"
        $job2 = /hashes_?per_?second/ nocase
        $job3 = /(accepted|total)_?hashes/ nocase
        $job4 = /\bsite_?key\b/ nocase
        $job5 = "nonce"

    condition:
        is_javascript and
        (2 of ($known*) or (any of ($known*) and $socket) or ($algorithm and $socket and $worker and 3 of ($job*)))
}

rule miner_wasm
{
    meta:
        id = "miner-wasm"
        why = "is the compiled part of a coin miner for browsers"

    strings:
        $create = /_?cryptonight_create\b/
        $hash = /_?cryptonight_hash(_variant_[0-9])?\b/
        $randomx1 = "randomx_create_vm"
        $randomx2 = "randomx_calculate_hash"

    condition:
        uint32(0) == 0x6d736100 and (($create and $hash) or all of ($randomx*))
}

rule miner_stratum
{
    meta:
        id = "miner-stratum"
        why = "is a script that mines for a pool"

    strings:
        $pool = /stratum(2)?\+(tcp|ssl|tls)s?:\/\/[a-z0-9.-]{4,100}:[0-9]{2,5}/ nocase
        $program = /\b(xmrig|xmr-stak|minerd|cpuminer(-multi)?|ccminer|t-rex|lolminer|nbminer|phoenixminer|cgminer|bfgminer|minergate)\b/ nocase
        $login = /mining\.(subscribe|authorize)|["']method["']\s*:\s*["']login["']/
        $socket = /new\s+WebSocket\(|net\.(connect|createConnection|Socket)/

    condition:
        $pool and (((is_shell_script or is_windows_script) and $program) or (is_javascript and $login and $socket))
}

rule miner_config
{
    meta:
        id = "miner-config"
        why = "is the configuration of a coin miner"

    strings:
        $pool = /"url"\s*:\s*"(stratum(2)?\+(tcp|ssl|tls)s?:\/\/)?[a-z0-9.-]{4,100}:[0-9]{2,5}"/ nocase
        $pools = /"pools"\s*:\s*\[/
        $donation = /"donate-level"\s*:/

    condition:
        extension == "json" and all of them
}
