/*-------------------------------------------------------------------------
 *
 * unit.h
 *	  What the unit tests share: a check, and numbers that are random but
 *	  the same in every run.
 *
 *-------------------------------------------------------------------------
 */
#ifndef UNIT_H
#define UNIT_H

#include <stdint.h>
#include <stdio.h>

/* rows of a slice page of 8 kB */
#define ROWS	508

static int	failures = 0;

/* Complains, with the values that explain it, unless the condition holds. */
#define CHECK(condition, ...) \
	do { \
		if (!(condition) && ++failures <= 20) \
		{ \
			printf("# line %d: %s: ", __LINE__, #condition); \
			printf(__VA_ARGS__); \
			printf("\n"); \
		} \
	} while (0)

/* splitmix64: every state gives a good number, also neighbouring ones. */
static inline uint64_t
mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t random_state = 0;

static inline uint64_t
next_random(void)
{
	return mix(random_state++);
}

/* The exit status of the program. */
static inline int
finish(void)
{
	if (failures > 0)
		printf("# %d checks failed\n", failures);
	return failures > 0;
}

#endif							/* UNIT_H */
