static size_t hugepage_size(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[100];
    size_t kb = 2048;

    while (file && fgets(line, sizeof(line), file))
        sscanf(line, "Hugepagesize: %zu", &kb);
    return kb << 10;
}
