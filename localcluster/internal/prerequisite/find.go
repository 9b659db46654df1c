package prerequisite

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// usual are the directories in which the node's components look for programs,
// whatever the user's PATH is.
const usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func find(program string) (string, error) {
	for _, dir := range filepath.SplitList(usual) {
		path := filepath.Join(dir, program)
		if _, err := exec.LookPath(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", program, exec.ErrNotFound)
}
