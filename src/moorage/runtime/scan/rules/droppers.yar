// Scripts that secretly download and run a program. Installers download and run programs too, and documentation quotes
// them, so each rule requires a script file and an action that legitimate installers do not perform.

rule dropper_shell
{
    meta:
        id = "dropper-shell"
        why = "is a shell script that fetches a program from a bare address and runs it"

    strings:
        $fetch = /\b(wget|curl|tftp|ftpget|lwp-download)\b[^\n|;]{0,120}\b(https?:\/\/|tftp:\/\/|-g -r )?[1-9][0-9]{0,2}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\b/
        $home = /\b(wget|curl|tftp|ftpget|lwp-download)\b[^\n|;]{0,120}\b(127\.[0-9]{1,3}|10\.[0-9]{1,3}|192\.168|172\.(1[6-9]|2[0-9]|3[01]))\.[0-9]{1,3}(\.[0-9]{1,3})?\b/
        $loose = /\bchmod\s+(\+x|[0-7]?7[0-7]{2}|a\+x|u\+x)\b/
        $pipe = /[0-9]{1,3}\.[0-9]{1,3}\/[^\s|;]{0,200}\s*\|\s*(sudo\s+)?(ba|da)?sh\b/
        $quiet1 = /\bcd\s+\/(tmp|var\/run|var\/tmp|dev\/shm|mnt)\b/
        $quiet2 = /\brm\s+-r?f\b/
        $quiet3 = /\bhistory\s+-c\b|\bunset\s+HISTFILE\b|HISTFILE=\/dev\/null/
        $quiet4 = /\bnohup\b|>\s*\/dev\/null\s+2>&1\s*&/
        $quiet5 = /\bcrontab\s+-\B|\/etc\/cron\.d\//

    condition:
        is_shell_script and #fetch > #home and ($loose or $pipe) and any of ($quiet*)
}

rule dropper_cron
{
    meta:
        id = "dropper-cron"
        why = "is a shell script that adds a download to the machine's crontab"

    strings:
        $plant = /(\*\/?[0-9]{0,2}\s+){3,5}(\/usr\/bin\/)?(curl|wget)\s[^\n]{0,200}\|\s*(ba|da)?sh\b/
        $table = /\|\s*crontab\s+-|\/etc\/cron\.d\/|\/var\/spool\/cron/

    condition:
        is_shell_script and $plant and $table
}

rule dropper_encoded_shell
{
    meta:
        id = "dropper-encoded-shell"
        why = "is a shell script that decodes a hidden script and runs it"

    strings:
        $piped = /\becho\s+(-n\s+)?["']?[A-Za-z0-9+\/]{80,}={0,2}["']?\s*\|\s*base64\s+(-d|-D|--decode)\s*\|\s*(sudo\s+)?(ba|da)?sh\b/
        $evaluated = /\beval\s+["']?(\$\(|`)\s*echo\s+(-n\s+)?["']?[A-Za-z0-9+\/]{80,}={0,2}["']?\s*\|\s*base64\s+(-d|-D|--decode)/

    condition:
        is_shell_script and any of them
}

rule dropper_powershell
{
    meta:
        id = "dropper-powershell"
        why = "is a Windows script that runs a hidden PowerShell command"

    strings:
        $hidden = /\bpowershell(\.exe)?["']?\s[^\n]{0,200}-w[a-z]{0,11}\s+["']?(hidden|1\b|h\b)/ nocase
        $encoded = /\bpowershell(\.exe)?["']?\s[^\n]{0,200}-e[a-z]{0,14}\s+["']?[A-Za-z0-9+\/]{120}/ nocase
        $fetch1 = /\.Download(String|File|Data)\s*\(/ nocase
        $fetch2 = /\b(Invoke-WebRequest|Invoke-RestMethod|Start-BitsTransfer|iwr|irm)\s/ nocase
        $fetch3 = /\b(bitsadmin|certutil)\b[^\n]{0,80}\s[\/-](transfer|urlcache)\b/ nocase

    condition:
        is_windows_script and ($encoded or ($hidden and any of ($fetch*)))
}

rule dropper_wscript
{
    meta:
        id = "dropper-wscript"
        why = "is a Windows script that saves a download and runs it"

    strings:
        $shell = "WScript.Shell" nocase
        $fetch = /\b(MSXML2\.(Server)?XMLHTTP|Microsoft\.XMLHTTP|WinHttp\.WinHttpRequest)/ nocase
        $stream = "ADODB.Stream" nocase
        $save = /\.SaveToFile\b/ nocase
        $run = /\.(Run|Exec|ShellExecute)\b/ nocase

    condition:
        (is_windows_script or (is_javascript and filesize < 100KB)) and all of them
}

rule dropper_clipboard
{
    meta:
        id = "dropper-clipboard"
        why = "puts a hidden system command into the visitor's clipboard"

    strings:
        $copied = /\b(writeText|setData)\(\s*(["']text(\/plain)?["']\s*,\s*)?["'`]\s*(cmd(\.exe)?\s+\/c\s+|conhost\s[^\n"'`]{0,40})?(powershell|mshta|msiexec)(\.exe)?\s+[^\n]{0,200}(-w[a-z]{0,11}\s+(hidden|h\b|1\b)|https?:\/\/)/ nocase

    condition:
        (is_page or is_javascript) and $copied
}
