/* Waiting without sleeping. */
#ifndef TDICT_SCHED_SPIN_H
#define TDICT_SCHED_SPIN_H

/* Tells the processor that this thread only looks again and again. */
static inline void tdict_spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

#endif
