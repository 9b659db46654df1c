package prerequisite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/yardmaster/yardmaster/localcluster/internal/progress"
)

// Ensure installs what is missing if it can, and otherwise returns an error that
// names it.
func Ensure(ctx context.Context, all []Prerequisite, out *progress.Printer) error {
	missing := Missing(all)
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return lacking(missing, "install them, or run as root where there is apt-get")
	}
	packages := packages(missing)
	out.Printf("installing with apt-get: %s", strings.Join(packages, " "))
	if err := install(ctx, packages); err != nil {
		return err
	}
	if missing = Missing(all); len(missing) > 0 {
		return lacking(missing, "apt-get did not bring them")
	}
	return nil
}

func lacking(missing []Prerequisite, advice string) error {
	var names []string
	for _, each := range missing {
		names = append(names, each.Name)
	}
	return fmt.Errorf("this machine lacks what a node needs: %s; %s", strings.Join(names, ", "), advice)
}

func packages(missing []Prerequisite) []string {
	var packages []string
	for _, each := range missing {
		packages = append(packages, each.Packages...)
	}
	return packages
}

// install first tries the existing package lists: fetching new ones takes longer
// than the installation, and may be impossible.
func install(ctx context.Context, packages []string) error {
	args := append([]string{"install", "--yes", "--no-install-recommends"}, packages...)
	first := apt(ctx, args...)
	if first == nil {
		return nil
	}
	if err := apt(ctx, "update"); err != nil {
		return errors.Join(first, err)
	}
	return apt(ctx, args...)
}

func apt(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, "apt-get", args...)
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return nil
}
