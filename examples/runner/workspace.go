package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// progressFile in the workspace contains how many lines of the prompt were executed, so that a stopped
// session can resume.
const progressFile = ".echo-progress"

// workspace is the directory of the session's workspace. Links cannot lead out of it.
type workspace struct{ root *os.Root }

func openWorkspace(directory string) (*workspace, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	return &workspace{root}, nil
}

func (m *workspace) closeRoot() { _ = m.root.Close() }

// completedLines returns how many lines of its prompt the session executed. The progress of another
// session, which used the workspace before, does not count.
func (m *workspace) completedLines(session string) (int, error) {
	raw, err := m.root.ReadFile(progressFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var name string
	var lines int
	if _, err := fmt.Sscanf(string(raw), "%s %d", &name, &lines); err != nil || name != session || lines < 0 {
		return 0, nil //nolint:nilerr // a crash may have left a partial file
	}
	return lines, nil
}

func (m *workspace) saveProgress(session string, lines int) error {
	const mode = 0o644
	return m.root.WriteFile(progressFile, fmt.Appendf(nil, "%s %d\n", session, lines), mode)
}

func (m *workspace) removeProgress() error {
	if err := m.root.Remove(progressFile); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// appendLine appends a line to a file.
func (m *workspace) appendLine(name, line string) error {
	const mode = 0o644
	file, err := m.root.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, line)
	return errors.Join(err, file.Close())
}
