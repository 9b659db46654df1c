package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
)

// session contains the inputs of the runner, from its environment and two files.
type session struct {
	name, job string
	attempt   int
	// maxResultBytes is the size to which the kubelet cuts a larger result.
	maxResultBytes int
	prompt         string
	workspace      string
	resultFile     string
	sdkSessionID   string
	// port to listen on; empty if the session is not interactive.
	port string

	Repos []struct {
		URL       string `json:"url"`
		Branch    string `json:"branch"`
		Directory string `json:"directory"`
	} `json:"repos"`
	Agent struct {
		Model string `json:"model"`
	} `json:"agent"`
}

// readSession reads all inputs at the start, so that a runner with missing inputs fails at once.
func readSession(getenv func(string) string) (*session, error) {
	s := &session{sdkSessionID: getenv("AGENTIC_SDK_SESSION_ID"), port: getenv("AGENTIC_PORT")}
	var promptFile, sessionFile, attempt string
	for name, value := range map[string]*string{
		"AGENTIC_SESSION": &s.name, "AGENTIC_JOB": &s.job, "AGENTIC_ATTEMPT": &attempt,
		"AGENTIC_PROMPT_FILE": &promptFile, "AGENTIC_SESSION_FILE": &sessionFile,
		"AGENTIC_WORKSPACE": &s.workspace, "AGENTIC_RESULT_FILE": &s.resultFile,
	} {
		if *value = getenv(name); *value == "" {
			return nil, fmt.Errorf("%s is not set", name)
		}
	}
	var err error
	if s.attempt, err = strconv.Atoi(attempt); err != nil {
		return nil, fmt.Errorf("AGENTIC_ATTEMPT: %w", err)
	}
	// Operators of v0.1.0 do not set it.
	if s.maxResultBytes, err = strconv.Atoi(cmp.Or(getenv("AGENTIC_RESULT_MAX_BYTES"), "4096")); err != nil {
		return nil, fmt.Errorf("AGENTIC_RESULT_MAX_BYTES: %w", err)
	}
	prompt, err := os.ReadFile(promptFile)
	if err != nil {
		return nil, err
	}
	s.prompt = string(prompt)
	raw, err := os.ReadFile(sessionFile)
	if err != nil {
		return nil, err
	}
	// Unknown fields are for other runners, or come from a newer operator.
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("reading %s: %w", sessionFile, err)
	}
	return s, nil
}
