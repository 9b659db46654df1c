package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
)

const (
	stateFileName  = "runner.json"
	maxStateBytes  = 1 << 20
	directoryMode  = 0o750
	maxStateLength = 1000 // maximum number of sessions and of conversations in the state
)

// state is the runner's state in the workspace. It is written as soon as the agent reports its conversation, because a runner that is
// killed writes no result.
type state struct {
	path string
	// Sessions are the sessions that used the workspace, by name: continueFrom shares a workspace.
	Sessions map[string]sessionState `json:"sessions"`
	// Conversations are the sums of conversations, for agents with TotalsOfConversation.
	Conversations map[string]agentprofile.Sums `json:"conversations,omitempty"`
}

// sessionState is the latest conversation of a session, and its run.
type sessionState struct {
	Profile      string `json:"profile"`
	Conversation string `json:"conversation"`
	// Directory is the working directory. Some agents find their conversations only in the same directory.
	Directory string `json:"directory"`
	Run       int    `json:"run"`
	// Finished means that the agent finished its work in this run.
	Finished bool `json:"finished,omitempty"`
}

// readState reads the state in a workspace; empty in a new workspace.
func readState(workspace string) (*state, error) {
	s := &state{path: filepath.Join(workspace, stateDirectory, stateFileName)}
	raw, err := readBounded(s.path, maxStateBytes)
	if err == nil {
		err = json.Unmarshal(raw, s)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if s.Sessions == nil || len(s.Sessions) > maxStateLength {
		s.Sessions = map[string]sessionState{}
	}
	if s.Conversations == nil || len(s.Conversations) > maxStateLength {
		s.Conversations = map[string]agentprofile.Sums{}
	}
	return s, err
}

func readBounded(path string, maxBytes int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxBytes)
	}
	return os.ReadFile(path)
}

// write replaces the file atomically, because the runner can be killed at any moment.
func (s *state) write() error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	const mode = 0o640
	next := s.path + ".next"
	if err := os.WriteFile(next, raw, mode); err != nil {
		return err
	}
	return os.Rename(next, s.path)
}

// baseline returns the sums of a conversation; nil if unknown.
func (s *state) baseline(conversation string) *agentprofile.Sums {
	if sums, found := s.Conversations[conversation]; found {
		return &sums
	}
	return nil
}
