package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// progressFile in the workspace says how far the prompt is done, so that a session that was
// stopped goes on where it was.
const progressFile = ".echo-progress"

// workspace is the workspace. It reaches no file outside, whatever links lie in it.
type workspace struct{ root *os.Root }

func openWorkspace(directory string) (*workspace, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	return &workspace{root}, nil
}

func (m *workspace) closeRoot() { _ = m.root.Close() }

// completedLines is how many lines of its prompt the session has done. A workspace may have been
// another session's before: what that one noted does not count.
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
		return 0, nil //nolint:nilerr // a note that was cut off in a crash is none
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

// appendLine adds a line to a file.
func (m *workspace) appendLine(name, line string) error {
	const mode = 0o644
	file, err := m.root.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, line)
	return errors.Join(err, file.Close())
}
