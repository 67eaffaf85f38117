"""PCC Vivace and Allegro, of the papers and of Linux."""
