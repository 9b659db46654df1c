package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ProcessCPUTime returns the CPU time that a running process has used, from /proc.
func ProcessCPUTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The fields follow the command in parentheses: state is field 3, utime and stime are
	// fields 14 and 15, in hundredths of a second on every Linux.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// ExitedProcessUsage returns the CPU time and the peak memory in bytes that a process has used.
func ExitedProcessUsage(state *os.ProcessState) (cpu time.Duration, peakRSS int64) {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		peakRSS = usage.Maxrss << 10
	}
	return state.UserTime() + state.SystemTime(), peakRSS
}

// ProcessMemory returns the current and the peak resident memory of a running process in bytes,
// from /proc.
func ProcessMemory(pid int) (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		for field, value := range map[string]*int64{"VmRSS:": &now, "VmHWM:": &peak} {
			if text, found := strings.CutPrefix(line, field); found {
				if _, err := fmt.Sscanf(text, "%d kB", value); err != nil {
					return 0, 0, fmt.Errorf("%s %w", field, err)
				}
				*value <<= 10
			}
		}
	}
	return now, peak, nil
}
