// PHP that runs commands from a request. Sites do not run PHP here, but attackers would download it from here.

rule webshell_direct
{
    meta:
        id = "webshell-direct"
        why = "is a PHP web shell: it runs commands from requests"

    strings:
        $run = /\b(eval|assert|system|passthru|shell_exec|exec|popen|proc_open|create_function)\s*\(\s*@?((stripslashes|base64_decode|gzinflate|gzuncompress|str_rot13|urldecode|trim)\s*\(\s*){0,3}\$_(GET|POST|REQUEST|COOKIE)\s*[\[{]/ nocase
        $tick = /`\s*\$_(GET|POST|REQUEST|COOKIE)\s*\[[^`\n]{1,60}`/ nocase
        $called = /\$_(GET|POST|REQUEST|COOKIE)\s*\[[^\]\n]{1,40}\]\s*\(\s*\$_(GET|POST|REQUEST|COOKIE)\s*\[/ nocase
        $open = /<\?(php|=)/ nocase

    condition:
        is_php and $open and any of ($run, $tick, $called)
}

rule webshell_packed
{
    meta:
        id = "webshell-packed"
        why = "is PHP that unpacks hidden code and runs it"

    strings:
        $run = /\b(eval|assert)\s*\(\s*@?["']?\s*(\?>\s*["']\s*\.\s*)?((gzinflate|gzuncompress|gzdecode|str_rot13|strrev|convert_uudecode)\s*\(\s*){1,4}base64_decode\s*\(/ nocase
        $replace = /\bpreg_replace\s*\(\s*["']\/\.\*\/e["']/ nocase
        $open = /<\?(php|=)/ nocase

    condition:
        is_php and $open and any of ($run, $replace)
}

rule webshell_known
{
    meta:
        id = "webshell-known"
        why = "is a known PHP web shell"

    strings:
        $c99 = "c99shell" nocase
        $r57 = "r57shell" nocase
        $wso = /\$default_action\s*=\s*['"]FilesMan['"]/
        $b374k = /\$GLOBALS\['pass'\]\s*=\s*"[0-9a-f]{32,40}";[^\n]{0,80}b374k/
        $alfa = "ALFA TEaM Shell"
        $runs = /\b(eval|system|passthru|shell_exec|exec|popen|proc_open)\s*\(/ nocase
        $open = /<\?(php|=)/ nocase

    condition:
        is_php and $open and $runs and any of ($c99, $r57, $wso, $b374k, $alfa)
}
