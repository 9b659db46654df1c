package session

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// keyPrompt and keySession are the files of a session's inputs.
	keyPrompt  = "prompt"
	keySession = "session.json"
	// keyVariable begins the keys of its environment variables, which are no files.
	keyVariable = "env."
)

// Inputs are what a runner reads of its session, besides the prompt, as session.json.
type Inputs struct {
	// Name and Namespace of the session.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// These are as in the session's spec.
	DisplayName       string                   `json:"displayName,omitempty"`
	UserContext       *v1alpha1.UserContext    `json:"userContext,omitempty"`
	Interactive       bool                     `json:"interactive"`
	Repos             []Repo                   `json:"repos,omitempty"`
	LLMSettings       *v1alpha1.LLMSettings    `json:"llmSettings,omitempty"`
	ActiveWorkflow    *v1alpha1.ActiveWorkflow `json:"activeWorkflow,omitempty"`
	MCPServers        *v1alpha1.MCPServers     `json:"mcpServers,omitempty"`
	StopOnRunFinished bool                     `json:"stopOnRunFinished,omitempty"`
}

// Repo is a repository with the directory that it belongs into.
type Repo struct {
	v1alpha1.SessionRepo `json:",inline"`

	// Directory in the workspace.
	Directory string `json:"directory"`
}

// inputs are the Secret with what the session's runner is given. It is immutable, and its
// name says what is in it: other inputs are another Secret.
func (d *decision) inputs() *corev1.Secret {
	spec := &d.in.Session.Spec
	data := map[string][]byte{keyPrompt: []byte(prompt(spec)), keySession: d.sessionFile()}
	for name, value := range spec.EnvironmentVariables {
		data[keyVariable+name] = []byte(value)
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metadata(d.in.Session, childName(d.in.Session.Name, inputsPart+hashOf(data))),
		Immutable:  new(true),
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}

func prompt(spec *v1alpha1.AgenticSessionSpec) string {
	if spec.Prompt != "" {
		return spec.Prompt
	}
	return spec.InitialPrompt
}

func (d *decision) sessionFile() []byte {
	spec := &d.in.Session.Spec
	in := Inputs{
		Name: d.in.Session.Name, Namespace: d.in.Session.Namespace,
		DisplayName: spec.DisplayName, UserContext: spec.UserContext, Interactive: spec.Interactive,
		LLMSettings: spec.LLMSettings, ActiveWorkflow: spec.ActiveWorkflow, MCPServers: spec.MCPServers,
		StopOnRunFinished: spec.StopOnRunFinished,
	}
	for i := range spec.Repos {
		in.Repos = append(in.Repos, Repo{spec.Repos[i], repoDirectory(&spec.Repos[i])})
	}
	raw, err := json.Marshal(in)
	if err != nil { // API types always marshal
		raw = fmt.Appendf(nil, "%q", err.Error())
	}
	return raw
}
