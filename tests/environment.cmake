# Read by ctest when it begins. Tests of one process keep to themselves: many run at once, and use the
# same ports. Those of several processes say so, and name a world of their own.
set(ENV{SGP_SOFTVERBS_NET} none)
