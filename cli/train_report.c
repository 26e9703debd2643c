#include "train.h"
bool train_write_report(const char *path, const struct train_settings *settings, const struct train_report *report, struct message *message)
{
    (void)settings; (void)report;
    return fail(message, "cannot write '%s' yet", path);
}
