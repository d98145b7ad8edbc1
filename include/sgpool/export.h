/* SPDX-License-Identifier: BSD-2-Clause */
/* What marks a public symbol, and lets C++ include these headers. */
#ifndef SGPOOL_EXPORT_H
#define SGPOOL_EXPORT_H

#define SGP_API __attribute__((visibility("default")))

/*
 * The same for what is called for each message: through the table of addresses at once, instead of by
 * a jump through it (a fifth of what such a call takes).
 */
#if defined(__has_attribute)
#if __has_attribute(noplt)
#define SGP_HOT_API SGP_API __attribute__((noplt))
#endif
#endif
#ifndef SGP_HOT_API
#define SGP_HOT_API SGP_API
#endif

#ifdef __cplusplus
#define SGP_BEGIN_DECLS extern "C" {
#define SGP_END_DECLS   }
#else
#define SGP_BEGIN_DECLS
#define SGP_END_DECLS
#endif

#endif
