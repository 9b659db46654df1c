// Package cgroup creates and deletes the control group below which a node's
// containers run, on cgroup v1 (a tree per controller) and v2 (one tree).
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const root = "/sys/fs/cgroup"

// controllers that the kubelet requires.
var controllers = []string{"cpuset", "cpu", "memory", "pids", "io", "hugetlb"}

// Create creates the group in every tree and, on v2, moves this process into a
// child of it. Processes started from here on are in that child too.
func Create(name string) error {
	unified, err := isUnified()
	if err != nil {
		return err
	}
	if unified {
		return createUnified(name)
	}
	return createPerController(name)
}

// Remove kills what still runs in the group and removes it from every tree.
func Remove(name string) error {
	trees, err := trees()
	if err != nil {
		return err
	}
	var failures []error
	for _, tree := range trees {
		failures = append(failures, removeTree(filepath.Join(tree, name)))
	}
	return errors.Join(failures...)
}

// Find returns the group's directories that exist.
func Find(name string) ([]string, error) {
	trees, err := trees()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, tree := range trees {
		if dir := filepath.Join(tree, name); isDir(dir) {
			found = append(found, dir)
		}
	}
	return found, nil
}

func isUnified() (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(root, &stat); err != nil {
		return false, fmt.Errorf("reading %s: %w", root, err)
	}
	return stat.Type == unix.CGROUP2_SUPER_MAGIC, nil
}

// createUnified obeys v2's rule that a group with controllers for its children
// holds no processes itself: they go into the child "system".
func createUnified(name string) error {
	group := filepath.Join(root, name)
	system := filepath.Join(group, "system")
	if err := enableControllers(root); err != nil {
		return err
	}
	if err := os.MkdirAll(system, 0o755); err != nil {
		return err
	}
	if err := enableControllers(group); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(system, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// enableControllers passes on those of the wanted controllers that group has.
func enableControllers(group string) error {
	content, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return err
	}
	available := " " + strings.TrimSpace(string(content)) + " "
	for _, controller := range controllers {
		if !strings.Contains(available, " "+controller+" ") {
			continue
		}
		if err := os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
			return fmt.Errorf("enabling the cgroup controller %s for children: %w", controller, err)
		}
	}
	return nil
}

func createPerController(name string) error {
	trees, err := trees()
	if err != nil {
		return err
	}
	for _, tree := range trees {
		var stat unix.Statfs_t
		if err := unix.Statfs(tree, &stat); err != nil {
			return err
		}
		if stat.Type != unix.CGROUP_SUPER_MAGIC { // v2's tree on a hybrid machine, which has no controllers
			continue
		}
		if err := os.MkdirAll(filepath.Join(tree, name), 0o755); err != nil {
			return err
		}
		if err := fillCPUSet(tree, name); err != nil {
			return err
		}
	}
	return nil
}

// fillCPUSet gives a new group its parent's processors: v1 starts with none,
// and then refuses processes.
func fillCPUSet(tree, name string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		content, err := os.ReadFile(filepath.Join(tree, file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not the tree of cpuset
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tree, name, file), content, 0); err != nil {
			return err
		}
	}
	return nil
}

// trees are the roots below which groups can be: one on v2, one for each mount
// on v1. Links such as cpu -> cpu,cpuacct would name a tree twice.
func trees() ([]string, error) {
	unified, err := isUnified()
	if err != nil || unified {
		return []string{root}, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, entry := range entries {
		if entry.IsDir() {
			found = append(found, filepath.Join(root, entry.Name()))
		}
	}
	return found, nil
}

// removeTree removes the deepest groups first. The kernel releases a group a
// moment after its last process has exited.
func removeTree(group string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := removeOnce(group)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func removeOnce(group string) error {
	var groups []string
	err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, group := range slices.Backward(groups) {
		if err := killProcesses(group); err != nil {
			return err
		}
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("deleting the control group: %w", err)
		}
	}
	return nil
}

func killProcesses(group string) error {
	content, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for field := range strings.FieldsSeq(string(content)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 0 { // 0 is a process that this namespace cannot see
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			return fmt.Errorf("killing a process of %s: %w", group, err)
		}
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
