/* SQLite's program speedtest1, after it has loaded the extension that the variable EXTENSION names: see speedtest.sh. */

#define main speedtest1_main
#include "test/speedtest1.c"
#undef main

int main(int argc, char **argv) {
  const char *extension = getenv("EXTENSION");
  sqlite3 *db = 0;
  char *message = 0;
  if (!extension) {
    fprintf(stderr, "set EXTENSION to the path of the extension\n");
    return 1;
  }
  int code = sqlite3_open(":memory:", &db);
  if (code == SQLITE_OK) code = sqlite3_enable_load_extension(db, 1);
  if (code == SQLITE_OK) code = sqlite3_load_extension(db, extension, 0, &message);
  if (code != SQLITE_OK) {
    fprintf(stderr, "cannot load $EXTENSION: %s\n", message ? message : sqlite3_errstr(code));
    return 1;
  }
  sqlite3_close(db);
  return speedtest1_main(argc, argv);
}
