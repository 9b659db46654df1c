package agenticsession

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

// objectBuilder builds the objects of an attempt only from its fields.
type objectBuilder struct {
	session  *v1alpha1.AgenticSession
	settings *runnerSettings
	// status with the open attempt.
	status  *v1alpha1.AgenticSessionStatus
	network *NetworkSettings
	check   *NetworkCheck
	keys    *adminauth.Keys
	// job of the open attempt; nil before it exists.
	job *batchv1.Job
	// budget of the attempt in millionths of a dollar; nil if it is not limited.
	budget *int64
}

func newObjectBuilder(f *facts, status *v1alpha1.AgenticSessionStatus) *objectBuilder {
	b := &objectBuilder{session: f.Session, settings: f.settings, status: status, network: &f.Network, check: &f.NetworkCheck, keys: f.Keys}
	if limit := findCostLimit(&f.Observation, status); limit != nil {
		b.budget = new(max(limit.micros-microsOf(status.TotalCostUSD), 0))
	}
	return b
}

// newChildObjects returns the objects that the attempt's Job needs, in the order of their creation: the network is
// restricted before any container of a session runs. A claim that exists is not among them: an empty claim must not
// replace it.
func (b *objectBuilder) newChildObjects(inputs *corev1.Secret) []decision.Object {
	s, settings := b.session, b.settings
	account := &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   childMetadata(s, sharedName(s.Name)),
		AutomountServiceAccountToken: new(false),
	}
	objects := []decision.Object{NewDefaultDenyPolicy(s.Namespace), account, newSessionNetworkPolicy(s, settings.runner, b.job, b.network, b.check), inputs}
	if settings.persistent && s.Spec.ContinueFrom == nil && b.status.Workspace.UID == "" {
		claim := &corev1.PersistentVolumeClaim{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: childMetadata(s, ClaimName(s.Name)),
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      []corev1.PersistentVolumeAccessMode{settings.accessMode},
				StorageClassName: settings.storageClass,
				Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: settings.workspaceSize}},
			},
		}
		if s.Spec.Workspace != nil && s.Spec.Workspace.Retention == v1alpha1.WorkspaceRetain {
			claim.OwnerReferences = nil // the garbage collector must not delete it
		}
		objects = append(objects, claim)
	}
	if s.Spec.Interactive {
		objects = append(objects, &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: childMetadata(s, ServiceName(s.Name)),
			Spec: corev1.ServiceSpec{
				Type:     corev1.ServiceTypeClusterIP,
				Selector: map[string]string{LabelSessionUID: string(s.UID)},
				Ports: []corev1.ServicePort{{
					Name: sessionPortName, Port: sessionPort(settings.runner, b.job), TargetPort: intstr.FromString(sessionPortName), Protocol: corev1.ProtocolTCP,
				}},
			},
		})
	}
	return append(objects, b.newLeaseObjects()...)
}

// newLeaseObjects returns the Lease through which the runner reports activity, if the attempt has a Lease, and the
// permission to renew only this Lease. The operator does not write the spec of the Lease.
func (b *objectBuilder) newLeaseObjects() []decision.Object {
	if !b.status.Attempt.Limits.ActivityLease {
		return nil
	}
	s, name := b.session, sharedName(b.session.Name)
	lease := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: childMetadata(s, LeaseName(s.Name)),
	}
	role := &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: childMetadata(s, name),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"},
			ResourceNames: []string{lease.Name}, Verbs: []string{"get", "update", "patch"},
		}},
	}
	binding := &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: childMetadata(s, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: s.Namespace}},
	}
	return []decision.Object{lease, role, binding}
}

// newJob returns the attempt's Job, without a deadline. The operator's metadata takes precedence over the
// SessionRunner's.
func (b *objectBuilder) newJob(template *corev1.PodTemplateSpec) *batchv1.Job {
	metadata := childMetadata(b.session, b.status.Attempt.JobName)
	labels, annotations := map[string]string{}, map[string]string{}
	if m := b.settings.runner.Spec.JobMetadata; m != nil {
		maps.Copy(labels, m.Labels)
		maps.Copy(annotations, m.Annotations)
	}
	maps.Copy(labels, metadata.Labels)
	decision.SetScheduleLabel(labels, b.session)
	annotations[AnnotationRun] = strconv.Itoa(int(b.status.Run))
	annotations[AnnotationAttempt] = strconv.Itoa(int(b.status.Attempt.Attempt))
	metadata.Labels, metadata.Annotations = labels, annotations
	metadata.OwnerReferences[0].BlockOwnerDeletion = new(true) // a Schedule that replaces a run waits until its Pods are gone
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: metadata,
		Spec: batchv1.JobSpec{
			Parallelism:          new(int32(1)),
			Completions:          new(int32(1)),
			BackoffLimit:         new(int32(0)),
			PodReplacementPolicy: new(batchv1.Failed),
			Template:             *template,
		},
	}
}

// newDryRunPod returns the Pod that the Job of the attempt will create.
func (b *objectBuilder) newDryRunPod(template *corev1.PodTemplateSpec) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: b.status.Attempt.JobName + "-", Namespace: b.session.Namespace,
			Labels: template.Labels, Annotations: template.Annotations, OwnerReferences: childMetadata(b.session, "").OwnerReferences,
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

const (
	// promptKey and sessionFileKey are the files of a session's inputs.
	promptKey      = "prompt"
	sessionFileKey = "session.json"
	// variableKeyPrefix is the prefix of the keys of environment variables, which are not mounted.
	variableKeyPrefix = "env."
)

// RunnerInputs is the content of session.json, from which a runner reads its session. The
// prompt is a separate file.
type RunnerInputs struct {
	// Name and Namespace of the session.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// The other fields are copies from the session's spec.
	DisplayName       string                `json:"displayName,omitempty"`
	UserContext       *v1alpha1.UserContext `json:"userContext,omitempty"`
	Interactive       bool                  `json:"interactive"`
	Repos             []RunnerRepo          `json:"repos,omitempty"`
	Agent             v1alpha1.SessionAgent `json:"agent,omitzero"`
	StopOnRunFinished bool                  `json:"stopOnRunFinished,omitempty"`
}

// RunnerRepo is a repository and the directory to clone it into.
type RunnerRepo struct {
	v1alpha1.SessionRepo `json:",inline"`

	// Directory in the workspace.
	Directory string `json:"directory"`
}

// newInputsSecret returns the Secret with the runner's inputs. It is immutable, and its name contains a hash of its
// content, so changed inputs are another Secret.
func (b *objectBuilder) newInputsSecret() *corev1.Secret {
	s, spec := b.session, &b.session.Spec
	file := RunnerInputs{
		Name: s.Name, Namespace: s.Namespace,
		DisplayName: spec.DisplayName, UserContext: spec.UserContext, Interactive: spec.Interactive,
		Agent: spec.Agent, StopOnRunFinished: spec.StopOnRunFinished,
	}
	for i := range spec.Repos {
		repo := RunnerRepo{spec.Repos[i], repoDirectory(&spec.Repos[i])}
		if repo.AutoPush && repo.Push.Branch == "" {
			// Sessions of several namespaces and clusters can have one repository, and a deleted session can have left its branch, so
			// the name has a part of the UID.
			repo.Push.Branch = v1alpha1.GitBranch("session/" + s.Name + "-" + string(s.UID[:min(len(s.UID), branchUIDLength)]))
		}
		file.Repos = append(file.Repos, repo)
	}
	raw, err := json.Marshal(file)
	if err != nil { // API types always marshal
		raw = fmt.Appendf(nil, "%q", err.Error())
	}
	data := map[string][]byte{promptKey: []byte(spec.Prompt), sessionFileKey: raw}
	for name, value := range spec.EnvironmentVariables {
		data[variableKeyPrefix+name] = []byte(value)
	}
	if b.usesProxy() {
		// The URL depends only on the status, so that the inputs do not change with each call.
		runner := b.settings.runner
		token, err := b.keys.SignSession(adminauth.Session{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID), Runner: runner.Name}, b.status.Attempt.EgressTokenExpires.Time)
		if err == nil { // strings always marshal
			data[proxyURLKey] = fmt.Appendf(nil, "http://%s:%s@%s", s.Name, token, runner.Status.EgressProxyAddress)
		}
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: childMetadata(s, childObjectName(s.Name, inputsNamePart+decision.ContentHash(data, inputsHashLength))),
		Immutable:  new(true),
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}

// Labels and annotations of a session's objects.
const (
	// LabelSession contains the session's name, for selectors of users.
	LabelSession = v1alpha1.Prefix + "session"
	// LabelSessionUID contains the session's UID. It selects the objects that the operator caches, and the Pods of the
	// NetworkPolicy. Ownership is always determined by the controller reference.
	LabelSessionUID = v1alpha1.Prefix + "session-uid"

	// AnnotationRun and AnnotationAttempt of a Job contain the numbers of its run and attempt.
	AnnotationRun     = v1alpha1.AnnotationRun
	AnnotationAttempt = v1alpha1.Prefix + "attempt"
	// AnnotationRunFinished of a Lease names the Job whose runner finished its run.
	AnnotationRunFinished = v1alpha1.Prefix + "run-finished"
)

const (
	// maxNameLength is the maximum length of a label value: Pods have a label with the name of their Job.
	maxNameLength    = 63
	inputsHashLength = 10
	nameHashLength   = 6
	branchUIDLength  = 8
)

// childObjectName returns "<owner>-<part>". If the result is too long, the owner's name is truncated and followed by
// its hash, so that the names of different owners stay different.
func childObjectName(owner, part string) string {
	if len(owner)+1+len(part) <= maxNameLength {
		return owner + "-" + part
	}
	mark := "-" + decision.HexDigest([]byte(owner), nameHashLength)
	room := maxNameLength - len(mark) - 1 - len(part)
	return strings.TrimRight(owner[:room], "-") + mark + "-" + part
}

// jobName returns the name of an attempt's Job. It never changes, so that a reconciliation with
// a stale cache gets AlreadyExists instead of creating a second Job.
func jobName(owner string, run, attempt int32) string {
	return childObjectName(owner, fmt.Sprintf("r%d-a%d", run, attempt))
}

// inputsNamePart precedes the hash in the names of inputs Secrets.
const inputsNamePart = "inputs-"

var inputsNamePattern = regexp.MustCompile(`-` + inputsNamePart + `[0-9a-f]{10}$`)

// sharedName returns the name of the ServiceAccount, NetworkPolicy, Role and RoleBinding.
func sharedName(owner string) string { return childObjectName(owner, "session") }

// ClaimName returns the name of the PersistentVolumeClaim that a session creates.
func ClaimName(owner string) string { return childObjectName(owner, "workspace") }

// ServiceName returns the name of an interactive session's Service.
func ServiceName(owner string) string { return owner }

// LeaseName returns the name of the Lease that a runner renews.
func LeaseName(owner string) string { return owner }

// NetworkPolicyName returns the name of a session's NetworkPolicy.
func NetworkPolicyName(owner string) string { return sharedName(owner) }

func childLabels(s *v1alpha1.AgenticSession) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue,
		LabelSession:            s.Name, // never longer than a label value
		LabelSessionUID:         string(s.UID),
	}
}

func childMetadata(s *v1alpha1.AgenticSession, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: s.Namespace, Labels: childLabels(s),
		OwnerReferences: decision.ControllerReferences("AgenticSession", s),
	}
}
