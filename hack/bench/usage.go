package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has used.
type usage struct {
	cpu     time.Duration
	peakRSS int64 // bytes
}

// usageOf reads it from /proc.
func usageOf(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	// After the command in parentheses: state is field 3, utime and stime are 14 and 15,
	// in hundredths of a second on every Linux.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return usage{}, err
		}
		ticks += n
	}
	peak, err := peakRSSOf(pid)
	return usage{cpu: time.Duration(ticks) * 10 * time.Millisecond, peakRSS: peak}, err
}

func peakRSSOf(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}
