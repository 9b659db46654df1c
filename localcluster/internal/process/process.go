// Package process finds the processes of a cluster by their
// environment. A pid written to a file may belong to another process when it is read; the
// environment that a process was started with does not change.
package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	clusterVariable   = "LOCALCLUSTER_DIR"
	componentVariable = "LOCALCLUSTER_COMPONENT"
)

// Process is one running process of a cluster.
type Process struct {
	PID       int
	Component string
	Memory    int64 // resident, in bytes
}

// Mark returns the environment by which Find finds a process.
func Mark(clusterDir, component string) []string {
	return []string{clusterVariable + "=" + clusterDir, componentVariable + "=" + component}
}

// Find returns the processes that were marked with clusterDir. It does not
// find containers, which have other environments and end with the node.
func Find(clusterDir string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// An unreadable environment is someone else's, an empty one a zombie's.
		environment, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil || lookup(environment, clusterVariable) != clusterDir {
			continue
		}
		found = append(found, Process{pid, lookup(environment, componentVariable), residentMemory(pid)})
	}
	return found, nil
}

// KillAll kills the processes of a cluster and returns when all have exited.
func KillAll(clusterDir string) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		processes, err := Find(clusterDir)
		if err != nil || len(processes) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes do not exit, among them %s with pid %d", len(processes), processes[0].Component, processes[0].PID)
		}
		for _, process := range processes {
			// ESRCH means that it has already exited.
			if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				return fmt.Errorf("killing %s with pid %d: %w", process.Component, process.PID, err)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func lookup(environment []byte, name string) string {
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		if value, found := strings.CutPrefix(string(variable), name+"="); found {
			return value
		}
	}
	return ""
}

// residentMemory is 0 for a process that has just exited.
func residentMemory(pid int) int64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var total, resident int64
	if _, err := fmt.Sscan(string(statm), &total, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
