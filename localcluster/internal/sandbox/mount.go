package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// hidden are the directories that a node writes to at paths that cannot be
// configured. Each is an empty one inside.
var hidden = []string{"/run", "/var/lib", "/var/log"}

// sysctls that kubelet sets for the whole machine, with the values it requires.
// Inside the sandbox they are ordinary files.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

func (s Sandbox) mount() error {
	// Slave first, so that mounts inside are invisible outside. Then shared, so that
	// containers see what is mounted for them.
	for _, propagation := range []uintptr{unix.MS_SLAVE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("isolating the node's mounts: %w", err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	resolvConf, err := filepath.EvalSymlinks("/etc/resolv.conf") // before /run, where it may lead, is hidden
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.hideAndShow(); err != nil {
		return err
	}
	if err := fakeSysctls(); err != nil {
		return err
	}
	if err := withoutNameServer(resolvConf); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// hideAndShow opens what must stay visible before it hides the parent directory.
func (s Sandbox) hideAndShow() error {
	outside := map[string]*os.File{}
	for inside, dir := range s.Visible {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:gocritic // All stay open until all are mounted.
		outside[inside] = f
	}
	for _, dir := range hidden {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("hiding %s: %w", dir, err)
		}
	}
	for inside, f := range outside {
		if err := os.MkdirAll(inside, 0o755); err != nil {
			return err
		}
		if err := bind(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), inside); err != nil {
			return err
		}
	}
	return os.MkdirAll("/run/lock", 0o755)
}

func fakeSysctls() error {
	const dir = "/run/sysctl"
	for name, value := range sysctls {
		file := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue // not in this kernel
		}
		fake := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(fake), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(fake, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := bind(fake, file); err != nil {
			return err
		}
	}
	return nil
}

// withoutNameServer points the resolver at an address where nothing listens, so
// that pulling an image fails immediately instead of after a minute.
func withoutNameServer(resolvConf string) error {
	if resolvConf == "" {
		return nil
	}
	const content = "nameserver 127.0.0.1\n"
	if strings.HasPrefix(resolvConf, "/run/") { // hidden: the link dangles until the file exists
		if err := os.MkdirAll(filepath.Dir(resolvConf), 0o755); err != nil {
			return err
		}
		return os.WriteFile(resolvConf, []byte(content), 0o644)
	}
	const fake = "/run/resolv.conf"
	if err := os.WriteFile(fake, []byte(content), 0o644); err != nil {
		return err
	}
	return bind(fake, resolvConf)
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("showing %s at %s: %w", source, target, err)
	}
	return nil
}
