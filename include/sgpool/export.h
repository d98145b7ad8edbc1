/* SPDX-License-Identifier: BSD-2-Clause */
/* What marks a public symbol, and lets C++ include these headers. */
#ifndef SGPOOL_EXPORT_H
#define SGPOOL_EXPORT_H

#define SGP_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define SGP_BEGIN_DECLS extern "C" {
#define SGP_END_DECLS   }
#else
#define SGP_BEGIN_DECLS
#define SGP_END_DECLS
#endif

#endif
