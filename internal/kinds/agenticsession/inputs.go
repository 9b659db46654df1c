package agenticsession

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// promptKey and keySession are the files of a session's inputs.
	promptKey      = "prompt"
	sessionFileKey = "session.json"
	// variableKeyPrefix begins the keys of environment variables, which are not mounted.
	variableKeyPrefix = "env."
)

// RunnerInputs is the content of session.json, from which a runner reads its session. The
// prompt is a separate file.
type RunnerInputs struct {
	// Name and Namespace of the session.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// The other fields are those of the session's spec.
	DisplayName       string                   `json:"displayName,omitempty"`
	UserContext       *v1alpha1.UserContext    `json:"userContext,omitempty"`
	Interactive       bool                     `json:"interactive"`
	Repos             []RunnerRepo             `json:"repos,omitempty"`
	LLMSettings       *v1alpha1.LLMSettings    `json:"llmSettings,omitempty"`
	ActiveWorkflow    *v1alpha1.ActiveWorkflow `json:"activeWorkflow,omitempty"`
	MCPServers        *v1alpha1.MCPServers     `json:"mcpServers,omitempty"`
	StopOnRunFinished bool                     `json:"stopOnRunFinished,omitempty"`
}

// RunnerRepo is a repository and the directory to clone it into.
type RunnerRepo struct {
	v1alpha1.SessionRepo `json:",inline"`

	// Directory is the name of a directory in the workspace.
	Directory string `json:"directory"`
}

// newInputsSecret returns the Secret with the runner's inputs. It is immutable, and its name
// contains a hash of its content: changed inputs are another Secret.
func (b *objectBuilder) newInputsSecret() *corev1.Secret {
	spec := &b.session.Spec
	data := map[string][]byte{promptKey: []byte(promptOf(spec)), sessionFileKey: b.marshalSessionFile()}
	for name, value := range spec.EnvironmentVariables {
		data[variableKeyPrefix+name] = []byte(value)
	}
	if b.usesProxy() {
		data[proxyURLKey] = []byte(b.proxyURL())
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: childMetadata(b.session, childObjectName(b.session.Name, inputsNamePart+decision.ContentHash(data, inputsHashLength))),
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

func (b *objectBuilder) marshalSessionFile() []byte {
	spec := &b.session.Spec
	in := RunnerInputs{
		Name: b.session.Name, Namespace: b.session.Namespace,
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
