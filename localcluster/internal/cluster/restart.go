package cluster

import (
	"fmt"
	"syscall"

	"github.com/yardmaster/yardmaster/localcluster/internal/process"
)

// Restart kills the processes of one component. The supervisor starts it again.
func (c *Cluster) Restart(component string) error {
	processes, err := process.Find(c.Dir)
	if err != nil {
		return err
	}
	found := false
	for _, p := range processes {
		if p.Component != component || component == supervisorName {
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
