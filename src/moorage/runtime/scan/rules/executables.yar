// Native programs, detected by their headers, not by their names.

rule executable_elf
{
    meta:
        id = "executable-elf"
        why = "is a Linux program"

    condition:
        // No file type of a web site begins with these four bytes.
        uint32(0) == 0x464c457f
}

// A Blazor application has its code as .NET libraries in `_framework`: these run in the browser's sandbox.
private rule is_browser_library
{
    condition:
        path matches /(^|\/)_framework\/[^\/]+\.dll$/ and
        uint16(uint32(0x3c) + 22) & 0x2000 != 0 and
        (
            (uint16(uint32(0x3c) + 24) == 0x010b and uint32(uint32(0x3c) + 232) != 0) or
            (uint16(uint32(0x3c) + 24) == 0x020b and uint32(uint32(0x3c) + 248) != 0)
        )
}

rule executable_pe
{
    meta:
        id = "executable-pe"
        why = "is a Windows program or library"

    condition:
        uint16(0) == 0x5a4d and uint32(uint32(0x3c)) == 0x00004550 and not is_browser_library
}

// Programs of DOS have no PE header, and neither has a truncated program of Windows.
rule executable_dos
{
    meta:
        id = "executable-dos"
        why = "is a DOS or Windows program"

    condition:
        uint16(0) == 0x5a4d and not is_browser_library and not executable_pe and
        (
            path matches /\.(exe|dll|com|scr|sys|ocx|cpl|drv)$/i or
            // The header that every usual linker writes.
            (uint32(0) == 0x00905a4d and uint32(4) == 0x00000003 and uint32(8) == 0x00000004)
        )
}

rule executable_macho
{
    meta:
        id = "executable-macho"
        why = "is a macOS program"

    condition:
        ((uint32(0) == 0xfeedface or uint32(0) == 0xfeedfacf) and uint32(12) >= 1 and uint32(12) <= 12) or
        ((uint32be(0) == 0xfeedface or uint32be(0) == 0xfeedfacf) and uint32be(12) >= 1 and uint32be(12) <= 12) or
        // Java classes begin with the same four bytes; their fifth to eighth are a version of at least 45.
        (
            (uint32be(0) == 0xcafebabe or uint32be(0) == 0xcafebabf) and uint32be(4) >= 1 and uint32be(4) < 30 and
            (uint32be(8) & 0x00ffffff == 7 or uint32be(8) & 0x00ffffff == 12 or uint32be(8) & 0x00ffffff == 18)
        )
}
