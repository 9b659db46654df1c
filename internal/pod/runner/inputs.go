package runner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
	"github.com/yardmaster/yardmaster/internal/pod/sessiongit"
)

const (
	defaultMaxResultBytes = 4096
	// stateDirectory in the workspace has the state of the runner and of its agents.
	stateDirectory = ".agentic"
)

type inputs struct {
	name, namespace, job string
	run, attempt         int
	prompt               string
	workspace, home      string
	resultFile           string
	maxResultBytes       int
	sdkSessionID         string
	// port to listen on; empty if the session is not interactive.
	port string
	file sessionFile
}

// sessionFile is the part of session.json that this runner uses.
type sessionFile struct {
	Repos []sessiongit.Repository `json:"repos"`
	Agent struct {
		Model     string      `json:"model"`
		MaxTokens json.Number `json:"maxTokens"`
		Workflow  *struct {
			Path string `json:"path"`
		} `json:"workflow"`
		MCPServers struct {
			Custom   map[string]agentprofile.MCPServer `json:"custom"`
			Disabled []string                          `json:"disabled"`
		} `json:"mcpServers"`
	} `json:"agent"`
	StopOnRunFinished bool `json:"stopOnRunFinished"`
}

// readInputs reads all inputs at the start, so that a runner with missing inputs fails at once.
func readInputs(getenv func(string) string) (*inputs, error) {
	in := &inputs{sdkSessionID: getenv("AGENTIC_SDK_SESSION_ID"), port: getenv("AGENTIC_PORT")}
	var promptFile, file, attempt, run string
	for name, value := range map[string]*string{
		"AGENTIC_SESSION": &in.name, "AGENTIC_NAMESPACE": &in.namespace, "AGENTIC_JOB": &in.job,
		"AGENTIC_RUN": &run, "AGENTIC_ATTEMPT": &attempt, "AGENTIC_PROMPT_FILE": &promptFile, "AGENTIC_SESSION_FILE": &file,
		"AGENTIC_WORKSPACE": &in.workspace, "AGENTIC_RESULT_FILE": &in.resultFile, "HOME": &in.home,
	} {
		if *value = getenv(name); *value == "" {
			return nil, fmt.Errorf("%s is not set", name)
		}
	}
	for name, number := range map[string]struct {
		value string
		into  *int
	}{
		"AGENTIC_RUN": {run, &in.run}, "AGENTIC_ATTEMPT": {attempt, &in.attempt},
		"AGENTIC_RESULT_MAX_BYTES": {cmp.Or(getenv("AGENTIC_RESULT_MAX_BYTES"), strconv.Itoa(defaultMaxResultBytes)), &in.maxResultBytes},
	} {
		var err error
		if *number.into, err = strconv.Atoi(number.value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	prompt, err := os.ReadFile(promptFile)
	if err != nil {
		return nil, err
	}
	in.prompt = string(prompt)
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &in.file); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	for i := range in.file.Repos {
		if directory := in.file.Repos[i].Directory; !filepath.IsLocal(directory) || directory == stateDirectory {
			return nil, fmt.Errorf("reading %s: %q is not a directory for a repository", file, directory)
		}
	}
	return in, nil
}

// workingDirectory is the directory of the only repository, or else the workspace.
func (in *inputs) workingDirectory() string {
	if len(in.file.Repos) == 1 {
		return filepath.Join(in.workspace, in.file.Repos[0].Directory)
	}
	return in.workspace
}
