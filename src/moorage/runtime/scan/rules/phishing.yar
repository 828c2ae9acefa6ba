// Pages that ask for the password of a well-known service and send it elsewhere. Forms of legitimate pages post to
// their own site or to the service itself.

private rule asks_for_a_password
{
    strings:
        $field = /<input\b[^<>]{0,400}\stype\s*=\s*["']?password\b/ nocase

    condition:
        is_page and $field
}

private rule posts_to_another_host
{
    strings:
        $any = /<form\b[^<>]{0,400}\saction\s*=\s*["']?https?:\/\/[a-z0-9]/ nocase
        $own = /<form\b[^<>]{0,400}\saction\s*=\s*["']?https:\/\/([a-z0-9-]{1,63}\.){0,4}(paypal\.com|facebook\.com|instagram\.com|netflix\.com|apple\.com|icloud\.com|google\.com|amazon\.(com|ca|de|fr|it|es|in|co\.uk|co\.jp|com\.au|com\.br|com\.mx)|microsoft\.com|microsoftonline\.com|live\.com|office\.com|linkedin\.com|dropbox\.com|docusign\.(com|net)|adobe\.com|whatsapp\.com|coinbase\.com|binance\.com|metamask\.io|steampowered\.com|steamcommunity\.com|roblox\.com|dhl\.(com|de)|usps\.com|fedex\.com|chase\.com|wellsfargo\.com|bankofamerica\.com|hsbc\.(com|co\.uk)|github\.com|yahoo\.com|discord\.com|spotify\.com|ebay\.com|x\.com|twitter\.com)["'\/:?\s>]/ nocase
        // A page under development posts to its own machine.
        $local = /<form\b[^<>]{0,400}\saction\s*=\s*["']?http:\/\/(localhost|127\.)/ nocase

    condition:
        #any > #own + #local
}

private rule posts_to_a_stranger
{
    strings:
        // Phishing kits use these names for the script that mails the passwords; a static site cannot run it.
        $mailer = /<form\b[^<>]{0,400}\saction\s*=\s*["']?(\.\/|\/)?([a-z0-9_.-]{1,40}\/){0,4}(post|next|next[0-9]|login|log|send|sender|sendmail|mail|mailer|email|process|verify|verification|check|signin|sign-in|action|save|auth|submit|data|result|results|rezult|hook|pass|password|step[0-9]?|go|need[0-9]?|xx+|a|z|steal|stealer|collect|grab|grabber|harvest|capture|phish|receive|logger|creds|credentials)[0-9]?\.php["'?\s>]/ nocase

    condition:
        posts_to_another_host or $mailer
}

rule phishing_login
{
    meta:
        id = "phishing-login"
        why = "asks for the password of a well-known service and sends it elsewhere"

    strings:
        $title1 = /<title[^<>]{0,80}>\s*(log ?in|sign ?in|login|access)\s+(((in)?to (your |my )?)|with (your |my ))?(paypal|facebook|instagram|netflix|apple( id)?|icloud|google|gmail|amazon|microsoft|outlook|office ?365|microsoft 365|onedrive|sharepoint|hotmail|linkedin|dropbox|docusign|adobe( id)?|whatsapp|coinbase|binance|metamask|steam|roblox|dhl|usps|fedex|chase|wells fargo|bank of america|hsbc|github|yahoo|discord|spotify|ebay|twitter)\b( (account|mail|web|online|bank))?[^<|]{0,20}<\/title>/ nocase
        $title2 = /<title[^<>]{0,80}>\s*(paypal|facebook|instagram|netflix|apple( id)?|icloud|google|gmail|amazon|microsoft|outlook|office ?365|microsoft 365|onedrive|sharepoint|hotmail|linkedin|dropbox|docusign|adobe( id)?|whatsapp|coinbase|binance|metamask|steam|roblox|dhl|usps|fedex|chase|wells fargo|bank of america|hsbc|github|yahoo|discord|spotify|ebay|twitter)( (accounts?|mail|web|web app|online|community|express|bank|sign-in))?\s*([:,|\s-]|\xe2\x80[\x90-\x95\xa2]|\xc2\xb7|&[a-z]{4,6};)\s*(log ?-?in|sign ?-?in|sign on|verify your|verification required|confirm your)\b[^<|]{0,40}<\/title>/ nocase
        // The name of the service first, and a request to log in or to verify something after it.
        $title3 = /<title[^<>]{0,80}>\s*(paypal|facebook|instagram|netflix|apple( id)?|icloud|google|gmail|amazon|microsoft|outlook|office ?365|microsoft 365|onedrive|sharepoint|hotmail|linkedin|dropbox|docusign|adobe( id)?|whatsapp|coinbase|binance|metamask|steam|roblox|dhl|usps|fedex|chase|wells fargo|bank of america|hsbc|github|yahoo|discord|spotify|ebay|twitter)((\s|[:,|.!()\/-]|\xe2\x80[\x90-\x95\xa2]|\xc2\xb7|\xc2\xbb|&[a-z]{4,6};){1,6}(accounts?|mail|web|web app|app|online|banking|bank|community|express|sign-in|office|365|security|support|billing|wallet|help|help center|services?|card|mobile|pay)\b){0,3}(\s|[:,|.!()\/-]|\xe2\x80[\x90-\x95\xa2]|\xc2\xb7|\xc2\xbb|&[a-z]{4,6};){1,6}(log ?-?in|log ?into|sign ?-?in|sign ?-?on|verify|verification|confirm|security (check|alert|notice)|unusual activity|account (locked|limited|suspended)|restore|recover|unlock)\b[^<|]{0,40}(\|\s*(paypal|facebook|instagram|netflix|apple( id)?|icloud|google|gmail|amazon|microsoft|outlook|office ?365|microsoft 365|onedrive|sharepoint|hotmail|linkedin|dropbox|docusign|adobe( id)?|whatsapp|coinbase|binance|metamask|steam|roblox|dhl|usps|fedex|chase|wells fargo|bank of america|hsbc|github|yahoo|discord|spotify|ebay|twitter)\s*)?<\/title>/ nocase
        // The request first; the title ends with the name of the service.
        $title4 = /<title[^<>]{0,80}>\s*((secure|account|customer|member) )?(log ?-?in|log ?into|sign ?-?in|sign ?-?on|verify|verification|confirm|update|unlock|secure|restore|recover|security|unusual activity|your account|account)\b((\s|[:,|.!()\/-]|\xe2\x80[\x90-\x95\xa2]|\xc2\xb7|\xc2\xbb|&[a-z]{4,6};){1,6}(to|into|with|in|your|the|my|account|billing|payment|information|details|identity|on|of|has|been|is|was|temporarily|limited|locked|suspended|verification|check|alert|notice|required)\b){0,8}(\s|[:,|.!()\/-]|\xe2\x80[\x90-\x95\xa2]|\xc2\xb7|\xc2\xbb|&[a-z]{4,6};){1,6}(paypal|facebook|instagram|netflix|apple( id)?|icloud|google|gmail|amazon|microsoft|outlook|office ?365|microsoft 365|onedrive|sharepoint|hotmail|linkedin|dropbox|docusign|adobe( id)?|whatsapp|coinbase|binance|metamask|steam|roblox|dhl|usps|fedex|chase|wells fargo|bank of america|hsbc|github|yahoo|discord|spotify|ebay|twitter)((\s|[:,|.!()\/-]|\xe2\x80[\x90-\x95\xa2]|\xc2\xb7|\xc2\xbb|&[a-z]{4,6};){1,6}(accounts?|mail|web|web app|app|online|banking|bank|community|express|sign-in|office|365|security|support|billing|wallet|help|help center|services?|card|mobile|pay)\b){0,3}\s*<\/title>/ nocase
        $title5 = /<title[^<>]{0,80}>\s*(paypal|facebook|instagram|netflix|apple( id)?|icloud|google|gmail|amazon|microsoft|outlook|office ?365|microsoft 365|onedrive|sharepoint|hotmail|linkedin|dropbox|docusign|adobe( id)?|whatsapp|coinbase|binance|metamask|steam|roblox|dhl|usps|fedex|chase|wells fargo|bank of america|hsbc|github|yahoo|discord|spotify|ebay|twitter)\s*<\/title>/ nocase
        $clone = /<title[^<>]{0,80}>[^<]{0,100}\b(clone|demo|tutorial|replica|template|example|ui kit)\b/ nocase

    condition:
        asks_for_a_password and not $clone and
        ((posts_to_a_stranger and any of ($title1, $title2, $title3, $title4)) or (posts_to_another_host and $title5))
}

rule phishing_microsoft
{
    meta:
        id = "phishing-microsoft"
        why = "is a copy of Microsoft's login page that sends the password elsewhere"

    strings:
        // Only the real page has a reason to load these.
        $asset = /(src|href)\s*=\s*["']https:\/\/(aadcdn|logincdn)\.(msauth|msftauth)\.net\// nocase

    condition:
        asks_for_a_password and posts_to_a_stranger and $asset
}

rule phishing_telegram
{
    meta:
        id = "phishing-telegram"
        why = "sends passwords to a chat"

    strings:
        $telegram = /api\.telegram\.org\/bot/ nocase
        $discord = /discord(app)?\.com\/api\/(v[0-9]+\/)?webhooks\// nocase
        $send = /sendMessage|sendDocument|fetch\(|XMLHttpRequest|axios|\$\.(post|ajax)|curl_exec|file_get_contents/
        // A label followed by its value: the text of a composed message. A line break may be escaped.
        $script_text = /([^a-z0-9_]|\\n|%0A)(pass(word|wd|code)?|pwd|parola|contrase[^\s]{1,2}a|senha)\b[\s:=*_>`|-]{1,12}(\$\{|["']\s*\+\s*[a-z_$(])/ nocase
        $php_text = /([^a-z0-9_]|\\n|%0A)(pass(word|wd|code)?|pwd|parola|senha)\b[\s:=*_>`|-]{1,12}(["']\s*\.\s*\$|\{?\$_POST|\{?\$pass)/ nocase

    condition:
        ($telegram or $discord) and $send and
        (((is_page or is_javascript) and $script_text) or (is_php and $php_text))
}

rule phishing_mailer
{
    meta:
        id = "phishing-mailer"
        why = "is the script of a phishing kit that mails stolen passwords"

    strings:
        $password = /\$_(POST|REQUEST)\s*\[\s*["'][a-z_-]{0,12}(pass|passwd|password|pwd|psw|cvv|ssn|pin)[a-z0-9_-]{0,12}["']\s*\]/ nocase
        $victim1 = /\$_SERVER\s*\[\s*["']REMOTE_ADDR["']\s*\]|getenv\(\s*["']REMOTE_ADDR["']\s*\)/ nocase
        $victim2 = /geoplugin\.net|ip-api\.com|ipinfo\.io|geoiptool\.com/ nocase
        $away1 = /\bmail\s*\(\s*\$/ nocase
        $away2 = /\bfopen\s*\(\s*["'][^"'\n]{1,60}\.(txt|html?|log)["']\s*,\s*["']a/ nocase
        $label = /\$(message|msg|body|data|text|bilsmg|hi)\s*\.?=\s*["'][^"'\n]{0,80}\b(pass(word|wd|code)?|pwd|cvv|ssn|pin)\b[^"'\n]{0,20}["']?\s*\.?\s*\{?\$/ nocase

    condition:
        is_php and $password and $label and any of ($victim*) and any of ($away*)
}

rule phishing_cloak
{
    meta:
        id = "phishing-cloak"
        why = "hides a page from phishing scanners"

    strings:
        $who1 = "phishtank" nocase
        $who2 = "netcraft" nocase
        $who3 = "openphish" nocase
        $who4 = /safebrowsing|google-safety|googleusercontent/ nocase
        $who5 = /bitdefender|kaspersky|trendmicro|fortinet|avast|mcafee/ nocase
        $who6 = "messagelabs" nocase
        $look1 = /HTTP_USER_AGENT|gethostbyaddr|REMOTE_(ADDR|HOST)/
        $away = /404 Not Found|\b(die|exit)\s*\(|\bdeny from|RewriteRule\s[^\n]{0,80}\[[^\]\n]{0,20}\bF\b|header\s*\(\s*["']Location/ nocase

    condition:
        (is_php or path matches /(^|\/)\.htaccess$/) and 3 of ($who*) and $look1 and $away
}
