"""What pages of one file share: templates, hashes of scripts for their policy, styles and scripts."""
