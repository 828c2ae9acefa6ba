// File types, for the rules of the other files. These rules are private: they produce no finding.
//
// Global variables: `path` (relative, lower case) and `extension` (without the dot).

private rule is_page
{
    strings:
        $start = /[\xef\xbb\xbf\s]{0,64}<(!doctype\s+html|html)[\s>]/ nocase

    condition:
        extension == "html" or extension == "htm" or extension == "xhtml" or extension == "shtml" or
        extension == "php" or extension == "phtml" or $start at 0
}

private rule is_javascript
{
    condition:
        extension == "js" or extension == "mjs" or extension == "cjs"
}

private rule is_shell_script
{
    strings:
        $shebang = /#![ \t]{0,8}\/[^\n]{0,60}\b(ba|da|z|k|a)?sh\b/

    condition:
        $shebang at 0 or extension == "sh" or extension == "bash"
}

private rule is_windows_script
{
    condition:
        extension == "ps1" or extension == "psm1" or extension == "bat" or extension == "cmd" or
        extension == "vbs" or extension == "vbe" or extension == "jse" or extension == "wsf" or extension == "hta"
}

// Images count too: web shells pass upload forms as code behind an image header.
private rule is_php
{
    strings:
        $open = /[\xef\xbb\xbf\s]{0,64}<\?php/ nocase

    condition:
        extension == "php" or extension == "phtml" or extension == "php5" or extension == "php7" or
        extension == "phar" or extension == "inc" or $open at 0 or
        extension == "gif" or extension == "jpg" or extension == "jpeg" or extension == "png" or extension == "ico"
}
