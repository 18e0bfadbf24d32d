# Files are written whole and standard output can be one of them.
sennit topo --fabric two_racks.fabric --svg - | head -c 40; echo
sennit topo --fabric two_racks.fabric --html $TMP/page.html --svg $TMP/picture.svg > $TMP/out; tail -c 15 $TMP/page.html; tail -c 7 $TMP/picture.svg; ls $TMP
sennit topo --fabric two_racks.fabric --svg /no/such/folder/x; echo $?
