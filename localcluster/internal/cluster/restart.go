package cluster

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/yardmaster/yardmaster/localcluster/internal/process"
)

// Restart kills the process of one component. The supervisor starts it again.
// What that process has started itself lives on: containers outlive containerd.
func (c *Cluster) Restart(component string) error {
	processes, err := process.Find(c.Dir)
	if err != nil {
		return err
	}
	found := false
	for _, p := range processes {
		if p.Component != component || component == supervisorName || !leadsSession(p.PID) {
			continue
		}
		found = true
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			return fmt.Errorf("killing %s: %w", component, err)
		}
	}
	if !found {
		return fmt.Errorf("no component %q is running", component)
	}
	return nil
}

// leadsSession is true of what the supervisor itself has started.
func leadsSession(pid int) bool {
	session, err := unix.Getsid(pid)
	return err == nil && session == pid
}
