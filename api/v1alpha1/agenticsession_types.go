package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunnerContainer is the name of the container whose exit code determines a session's outcome.
const RunnerContainer = "runner"

// SessionEnvPrefix is the prefix of the environment variables that describe the session to its
// runner.
const SessionEnvPrefix = "AGENTIC_"

// AgenticSession is a session of an AI agent, with the image and limits of a SessionRunner.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=as,categories=yardmaster
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must begin with a letter and have at most 52 lower-case letters, digits and dashes"
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.spec.runner`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Run",type=integer,JSONPath=`.status.run`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`
// +kubebuilder:printcolumn:name="Pushed",type=string,JSONPath=`.status.conditions[?(@.type=='Pushed')].status`
// +kubebuilder:printcolumn:name="Cost",type=number,JSONPath=`.status.totalCostUSD`
// +kubebuilder:printcolumn:name="Runner",type=string,priority=1,JSONPath=`.spec.runner`
// +kubebuilder:printcolumn:name="User",type=string,priority=1,JSONPath=`.spec.userContext.userID`
// +kubebuilder:printcolumn:name="Job",type=string,priority=1,JSONPath=`.status.attempt.jobName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AgenticSession struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired session.
	// +required
	Spec AgenticSessionSpec `json:"spec"`

	// status is the observed state.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	// +structType=atomic
	Status AgenticSessionStatus `json:"status,omitempty"`
}

// AgenticSessionList is a list of AgenticSessions.
//
// +kubebuilder:object:root=true
type AgenticSessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AgenticSession `json:"items"`
}

// AgenticSessionSpec is the desired session. A change applies to the session's next Job, except that suspend, limits,
// stopOnRunFinished, retry and ttlSecondsAfterFinished apply immediately.
//
// +kubebuilder:validation:XValidation:rule="has(self.prompt) || (has(self.interactive) && self.interactive) || self.?agent.?workflow.hasValue()",message="prompt is required, unless the session is interactive or has an agent.workflow",fieldPath=".prompt",reason="FieldValueRequired"
// +kubebuilder:validation:XValidation:rule="has(self.prompt) == has(oldSelf.prompt) && (!has(self.prompt) || self.prompt == oldSelf.prompt)",message="prompt is immutable",fieldPath=".prompt"
// +kubebuilder:validation:XValidation:rule="has(self.userContext) == has(oldSelf.userContext) && (!has(self.userContext) || self.userContext == oldSelf.userContext)",message="userContext is immutable",fieldPath=".userContext"
// +kubebuilder:validation:XValidation:rule="has(self.workspace) == has(oldSelf.workspace)",message="workspace is immutable, except onLost",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="has(self.continueFrom) == has(oldSelf.continueFrom) && (!has(self.continueFrom) || self.continueFrom == oldSelf.continueFrom)",message="continueFrom is immutable",fieldPath=".continueFrom"
// +kubebuilder:validation:XValidation:rule="!(has(self.continueFrom) && has(self.workspace))",message="with continueFrom the session uses the other session's workspace: do not set workspace",fieldPath=".workspace"
type AgenticSessionSpec struct {
	// runner is the name of the SessionRunner. Defaults to default.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Runner string `json:"runner,omitempty"`

	// prompt for the agent, at most 64 KiB. Required unless interactive or agent.workflow is set. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 65536",message="prompt must not have more than 65536 bytes"
	Prompt string `json:"prompt,omitempty"`

	// displayName of the session.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`

	// userContext is the user of the session, its author: set at admission. Others need the verb administer to change the spec.
	// Immutable.
	// +optional
	UserContext *UserContext `json:"userContext,omitempty"`

	// interactive sessions serve a Service of their name until they are stopped. Defaults to false. Immutable.
	// +optional
	// +kubebuilder:default=false
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="interactive is immutable"
	Interactive bool `json:"interactive"`

	// repos are git repositories to clone, with unique URLs and names.
	// +optional
	// +listType=map
	// +listMapKey=url
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))",message="names of repos must be unique"
	Repos []SessionRepo `json:"repos,omitempty"`

	// workspace is a claim for the directory of the agent, which all runs use. Its size is at most
	// limits.maxWorkspaceSize of the SessionRunner, which selects the class, and defaults to 10Gi or that maximum. Unset
	// means an empty directory for each Pod. Immutable, except onLost.
	// +optional
	Workspace *WorkspaceClaim `json:"workspace,omitempty"`

	// continueFrom is a finished session of the same user, whose workspace this one uses. Immutable.
	// +optional
	ContinueFrom *LocalReference `json:"continueFrom,omitempty"`

	// agent has settings of the agent, for the runner.
	// +optional
	Agent SessionAgent `json:"agent,omitzero"`

	// environmentVariables of the runner, 256 KiB in total. Those of the SessionRunner, PATH, HOME, TMPDIR, and the
	// prefixes AGENTIC_, YARDMASTER_, KUBERNETES_ and LD_ are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[A-Za-z_][A-Za-z0-9_]{0,127}$'))",message="names of environment variables must be C identifiers of at most 128 characters"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('AGENTIC_') || k.startsWith('YARDMASTER_') || k.startsWith('KUBERNETES_') || k.startsWith('LD_') || k in ['PATH', 'HOME', 'TMPDIR'])",message="names that begin with AGENTIC_, YARDMASTER_, KUBERNETES_ or LD_, and PATH, HOME and TMPDIR, are reserved"
	EnvironmentVariables map[string]EnvironmentValue `json:"environmentVariables,omitempty"`

	// envFrom adds variables for the keys in allowed of the SessionRunner. Prefer secretMounts for Secrets.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// secretMounts are files with the keys in allowed.secrets of the SessionRunner.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	SecretMounts []SecretMount `json:"secretMounts,omitempty"`

	// image of the runner, one of allowed.images. Defaults to the SessionRunner's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// resources of the runner, within limits.maxResources. Defaults to those of the SessionRunner.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// limits of the time and the cost of the session.
	// +optional
	Limits SessionLimits `json:"limits,omitzero"`

	// retry of failed runs. limit is at most 5. Unset means none.
	// +optional
	Retry *SessionRetry `json:"retry,omitempty"`

	// stopOnRunFinished stops an interactive session that reports the end of its run. It requires activityLease.
	// Defaults to false.
	// +optional
	StopOnRunFinished bool `json:"stopOnRunFinished,omitempty"`

	// suspend stops the session and keeps its workspace. False resumes it. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// rerun requests another run.
	// +optional
	Rerun *Rerun `json:"rerun,omitempty"`

	// ttlSecondsAfterFinished until the object is deleted. Unset means never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// RunLimits limit the time, the idle time and the cost of a session.
type RunLimits struct {
	// timeout is how long a session may run, over all its runs, 0s to 8760h. 0s means no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8760h')",message="timeout must be a duration from 0s to 8760h"
	Timeout *Duration `json:"timeout,omitempty"`

	// maxCostUSD is the reported cost of all runs in US dollars at which a session stops, 0.000001 to 1000000000. Unset
	// means no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0.000001 && self <= 1000000000.0",message="maxCostUSD must be from 0.000001 to 1000000000"
	MaxCostUSD *Number `json:"maxCostUSD,omitempty"`

	// inactivityTimeout is how long a session may be idle until it stops, 0s to 720h. It requires activityLease. Defaults
	// to 0s: never.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="inactivityTimeout must be a duration from 0s to 720h"
	InactivityTimeout *Duration `json:"inactivityTimeout,omitempty"`
}

// SessionLimits are the limits that a session sets. The SessionRunner's apply too. timeout defaults to 4h.
//
// +kubebuilder:validation:XValidation:rule="!has(self.inactivityTimeout) || duration(self.?timeout.orValue('4h')) == duration('0s') || duration(self.inactivityTimeout) <= duration(self.?timeout.orValue('4h'))",message="inactivityTimeout must not be greater than timeout",fieldPath=".inactivityTimeout"
type SessionLimits struct {
	RunLimits `json:",inline"`

	// startupTimeout is how long something missing or wrong may delay the start, 0s to 168h. 0s means no limit. Defaults
	// to 10m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('168h')",message="startupTimeout must be a duration from 0s to 168h"
	StartupTimeout *Duration `json:"startupTimeout,omitempty"`
}

// SessionAgent has settings of the agent, for the runner.
type SessionAgent struct {
	// model is the name of the model.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Model string `json:"model,omitempty"`

	// maxTokens of an answer, 1 to 10000000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxTokens *int32 `json:"maxTokens,omitempty"`

	// workflow is a git repository with instructions for the agent.
	// +optional
	Workflow *SessionWorkflow `json:"workflow,omitempty"`

	// mcpServers are the tool servers of the agent, at most 64 KiB as JSON.
	// +optional
	MCPServers MCPServers `json:"mcpServers,omitzero"`
}

// EnvironmentValue is the value of a variable.
//
// +kubebuilder:validation:MaxLength=32768
type EnvironmentValue string

// UserContext is the user that a session belongs to.
type UserContext struct {
	// userID is the user's name in Kubernetes.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	UserID string `json:"userID,omitempty"`
}

// GitSource is a branch of a git repository.
type GitSource struct {
	// url is https://, ssh:// or git@host:path, without credentials.
	// +required
	URL GitURL `json:"url"`

	// branch to check out. Defaults to the HEAD of the server.
	// +optional
	Branch GitBranch `json:"branch,omitempty"`
}

// SessionRepo is a git repository to work on.
type SessionRepo struct {
	GitSource `json:",inline"`

	// name of the directory in the workspace. Defaults to the last part of the URL.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	Name string `json:"name,omitempty"`

	// autoPush requests to push the changes. Defaults to false.
	// +optional
	AutoPush bool `json:"autoPush,omitempty"`

	// push is where autoPush pushes to.
	// +optional
	Push RepoPush `json:"push,omitzero"`

	// onPushFailure is Fail, so that a run is not Completed unless its work was pushed, or Ignore. Defaults to Fail.
	// +optional
	OnPushFailure PushFailurePolicy `json:"onPushFailure,omitempty"`

	// depth is how many commits of each branch to clone. Unset means all.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Depth *int32 `json:"depth,omitempty"`
}

// RepoPush is where the commits of a session are pushed to.
type RepoPush struct {
	// branch that gets the commits. Defaults to session/<name>-<UID>, with the first eight characters of the UID.
	// +optional
	Branch GitBranch `json:"branch,omitempty"`

	// base of the pull request. Defaults to the branch that is checked out.
	// +optional
	Base GitBranch `json:"base,omitempty"`

	// draft opens the pull request as a draft. Defaults to false.
	// +optional
	Draft bool `json:"draft,omitempty"`
}

// PushFailurePolicy is what work that was not pushed means for its run.
//
// +kubebuilder:validation:Enum=Fail;Ignore
type PushFailurePolicy string

// The policies for work that was not pushed.
const (
	PushFailureFail   PushFailurePolicy = "Fail"
	PushFailureIgnore PushFailurePolicy = "Ignore"
)

// GitURL is the URL of a git repository.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=2048
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^\\\\s]+$') || (isURL(self) && url(self).getScheme() in ['https', 'ssh'] && url(self).getHost().size() > 0)",message="the URL must be https://, ssh:// or git@host:path"
// +kubebuilder:validation:XValidation:rule="!self.matches('^https://[^/]*@') && !self.matches('^ssh://[^/@]*:[^/@]*@')",message="the URL must not contain credentials: put them into a Secret, and mount it with secretMounts"
type GitURL string

// GitBranch is the name of a git branch.
//
// +kubebuilder:validation:MaxLength=244
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9._/+@#-]*$`
type GitBranch string

// SecretMount is a Secret that is mounted as files.
type SecretMount struct {
	LocalReference `json:",inline"`

	// mountPath directly below /secrets. Defaults to /secrets/<name>.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/secrets/[A-Za-z0-9_-][A-Za-z0-9._-]*$`
	MountPath string `json:"mountPath,omitempty"`

	// optional lets the session start without it. Defaults to false.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// SessionRetry defines which failed runs are retried, and when.
//
// +kubebuilder:validation:XValidation:rule="!has(self.limit) || self.limit <= 5",message="limit must be from 0 to 5",fieldPath=".limit"
type SessionRetry struct {
	Retry `json:",inline"`

	// onDisruption also retries up to five evictions or losses of the Pod. Defaults to false.
	// +optional
	OnDisruption bool `json:"onDisruption,omitempty"`
}

// SessionWorkflow is a git repository with instructions for the agent.
type SessionWorkflow struct {
	GitSource `json:",inline"`

	// path of the instructions.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",message="path must stay within the repository"
	Path string `json:"path,omitempty"`
}

// MCPServers are tool servers that speak the Model Context Protocol.
type MCPServers struct {
	// custom servers by name, in the runner's format.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Custom map[string]apiextensionsv1.JSON `json:"custom,omitempty"`

	// disabled built-in servers of the runner.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Disabled []string `json:"disabled,omitempty"`
}
