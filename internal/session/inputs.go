package session

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// promptKey and keySession are the files of a session's inputs.
	promptKey      = "prompt"
	sessionFileKey = "session.json"
	// variableKeyPrefix begins the keys of its environment variables, which are no files.
	variableKeyPrefix = "env."
)

// RunnerInputs are what a runner reads of its session, besides the prompt, as session.json.
type RunnerInputs struct {
	// Name and Namespace of the session.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// These are as in the session's spec.
	DisplayName       string                   `json:"displayName,omitempty"`
	UserContext       *v1alpha1.UserContext    `json:"userContext,omitempty"`
	Interactive       bool                     `json:"interactive"`
	Repos             []RunnerRepo             `json:"repos,omitempty"`
	LLMSettings       *v1alpha1.LLMSettings    `json:"llmSettings,omitempty"`
	ActiveWorkflow    *v1alpha1.ActiveWorkflow `json:"activeWorkflow,omitempty"`
	MCPServers        *v1alpha1.MCPServers     `json:"mcpServers,omitempty"`
	StopOnRunFinished bool                     `json:"stopOnRunFinished,omitempty"`
}

// RunnerRepo is a repository with the directory that it belongs into.
type RunnerRepo struct {
	v1alpha1.SessionRepo `json:",inline"`

	// Directory in the workspace.
	Directory string `json:"directory"`
}

// inputs are the Secret with what the session's runner is given. It is immutable, and its
// name says what is in it: other inputs are another Secret.
func (d *evaluation) inputs() *corev1.Secret {
	spec := &d.observation.Session.Spec
	data := map[string][]byte{promptKey: []byte(promptOf(spec)), sessionFileKey: d.sessionFile()}
	for name, value := range spec.EnvironmentVariables {
		data[variableKeyPrefix+name] = []byte(value)
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: childMetadata(d.observation.Session, childObjectName(d.observation.Session.Name, inputsNamePart+hashJSON(data))),
		Immutable:  new(true),
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}

func promptOf(spec *v1alpha1.AgenticSessionSpec) string {
	if spec.Prompt != "" {
		return spec.Prompt
	}
	return spec.InitialPrompt
}

func (d *evaluation) sessionFile() []byte {
	spec := &d.observation.Session.Spec
	in := RunnerInputs{
		Name: d.observation.Session.Name, Namespace: d.observation.Session.Namespace,
		DisplayName: spec.DisplayName, UserContext: spec.UserContext, Interactive: spec.Interactive,
		LLMSettings: spec.LLMSettings, ActiveWorkflow: spec.ActiveWorkflow, MCPServers: spec.MCPServers,
		StopOnRunFinished: spec.StopOnRunFinished,
	}
	for i := range spec.Repos {
		in.Repos = append(in.Repos, RunnerRepo{spec.Repos[i], repoDirectory(&spec.Repos[i])})
	}
	raw, err := json.Marshal(in)
	if err != nil { // API types always marshal
		raw = fmt.Appendf(nil, "%q", err.Error())
	}
	return raw
}
