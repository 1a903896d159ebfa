// placeholder until the folder has sources
