"""One archive of a campaign's results, in RO-Crate form: written, checked and unpacked.

content   which files of a campaign go in, and what is missing
private   what must not go in: paths and accounts of the machine
crate     ro-crate-metadata.json, what the files are in the words of schema.org
manifest  manifest.json, the SHA-256 of every other file
pack      the ZIP file, the same bytes for the same content
unpack    an archive's files, none trusted before it is checked
export, bring_in, reference   the commands
"""
