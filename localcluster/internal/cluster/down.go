package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/yardmaster/yardmaster/localcluster/internal/cgroup"
	"github.com/yardmaster/yardmaster/localcluster/internal/process"
)

// Down stops the cluster and deletes all its files. It returns whether anything
// existed.
func (c *Cluster) Down() (bool, error) {
	existed, err := c.exists()
	if err != nil || !existed {
		return existed, err
	}
	unlock, err := c.lock()
	if err != nil {
		return existed, err
	}
	defer unlock()
	return existed, c.remove()
}

// exists reports whether anything of the cluster exists.
func (c *Cluster) exists() (bool, error) {
	if _, err := os.Stat(c.Dir); err == nil {
		return true, nil
	}
	processes, err := process.Find(c.Dir)
	if err != nil {
		return false, err
	}
	groups, err := cgroup.Find(c.cgroup())
	return len(processes) > 0 || len(groups) > 0, err
}

// remove depends on no file whose writing a crash could have prevented. A
// node's containers and mounts end with its pid 1.
func (c *Cluster) remove() error {
	if err := process.KillAll(c.Dir); err != nil {
		return err
	}
	if err := cgroup.Remove(c.cgroup()); err != nil {
		return err
	}
	if err := unmountBelow(c.Dir); err != nil {
		return err
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		return fmt.Errorf("deleting the cluster's directory: %w", err)
	}
	return nil
}

// unmountBelow makes sure that removing dir removes nothing that is only
// mounted there. A node mounts nothing on the host, so there should be no mount.
func unmountBelow(dir string) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	var failures []error
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || !strings.HasPrefix(fields[4], dir+string(filepath.Separator)) {
			continue
		}
		if err := unix.Unmount(fields[4], unix.MNT_DETACH); err != nil {
			failures = append(failures, fmt.Errorf("unmounting %s: %w", fields[4], err))
		}
	}
	return errors.Join(append(failures, lines.Err())...)
}

// lock keeps two commands from starting or removing clusters at the same time.
// The lock is on the directory of all clusters: a file of its own would be left
// behind, or be removed while someone waits for it.
func (c *Cluster) lock() (unlock func(), err error) {
	clusters := filepath.Dir(c.Dir)
	if err := os.MkdirAll(clusters, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(clusters)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("waiting for another localcluster command: %w", err)
	}
	return func() { f.Close() }, nil
}
