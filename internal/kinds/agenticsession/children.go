package agenticsession

import (
	"maps"
	"strconv"

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

// objectBuilder builds the objects of an attempt. Their content depends only on its fields.
type objectBuilder struct {
	session  *v1alpha1.AgenticSession
	settings *runnerSettings
	// status with the open attempt.
	status  *v1alpha1.AgenticSessionStatus
	network *NetworkSettings
	check   *NetworkCheck
	// keys sign the session's token for the egress proxy; nil if the operator has none.
	keys *adminauth.Keys
}

// newChildObjects returns the objects that the attempt's Job needs, in the order in which they
// are created: the network is restricted before anything of a session runs. A claim that exists is
// not among them: it does not change, and an empty one must not replace it.
func (b *objectBuilder) newChildObjects(inputs *corev1.Secret) []decision.Object {
	s, runner := b.session, b.settings.runner
	objects := []decision.Object{NewDefaultDenyPolicy(s.Namespace), b.newServiceAccount(), newSessionNetworkPolicy(s, runner, b.network, b.check), inputs}
	if b.settings.persistent && s.Spec.ContinueFrom == nil && b.status.WorkspaceUID == "" {
		objects = append(objects, b.newClaim())
	}
	if s.Spec.Interactive {
		objects = append(objects, b.newService())
	}
	return append(objects, b.newLeaseObjects()...)
}

// newLeaseObjects returns the Lease of an attempt whose runner has one, and the permission to renew it.
func (b *objectBuilder) newLeaseObjects() []decision.Object {
	if !hasActivityLease(b.status, b.settings) {
		return nil
	}
	return []decision.Object{b.newLease(), b.newRole(), b.newRoleBinding()}
}

func (b *objectBuilder) newServiceAccount() decision.Object {
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   childMetadata(b.session, sharedName(b.session.Name)),
		AutomountServiceAccountToken: new(false),
	}
}

// newClaim returns the claim of the session's workspace. A retained claim has no owner, so that
// the garbage collector does not delete it; its label names the session.
func (b *objectBuilder) newClaim() decision.Object {
	s := b.session
	claim := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: childMetadata(s, ClaimName(s.Name)),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{b.settings.accessMode},
			StorageClassName: b.settings.storageClass,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: b.settings.workspaceSize}},
		},
	}
	if s.Spec.Workspace != nil && s.Spec.Workspace.Retain {
		claim.OwnerReferences = nil
	}
	return claim
}

func (b *objectBuilder) newService() decision.Object {
	s := b.session
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: childMetadata(s, ServiceName(s.Name)),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: map[string]string{LabelSessionUID: string(s.UID)},
			Ports: []corev1.ServicePort{{
				Name: sessionPortName, Port: b.sessionPort(), TargetPort: intstr.FromString(sessionPortName), Protocol: corev1.ProtocolTCP,
			}},
		},
	}
}

// newLease returns the Lease through which the runner reports activity. The operator does not
// write its spec.
func (b *objectBuilder) newLease() decision.Object {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: childMetadata(b.session, LeaseName(b.session.Name)),
	}
}

// newRole returns the Role that allows the runner to renew its Lease, and nothing else.
func (b *objectBuilder) newRole() decision.Object {
	s := b.session
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: childMetadata(s, sharedName(s.Name)),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"},
			ResourceNames: []string{LeaseName(s.Name)}, Verbs: []string{"get", "update", "patch"},
		}},
	}
}

func (b *objectBuilder) newRoleBinding() decision.Object {
	s := b.session
	name := sharedName(s.Name)
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: childMetadata(s, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: s.Namespace}},
	}
}

// newJob returns the attempt's Job, without a deadline.
func (b *objectBuilder) newJob(template *corev1.PodTemplateSpec) *batchv1.Job {
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: b.newJobMetadata(),
		Spec: batchv1.JobSpec{
			Parallelism:          new(int32(1)),
			Completions:          new(int32(1)),
			BackoffLimit:         new(int32(0)),
			PodReplacementPolicy: new(batchv1.Failed),
			Template:             *template,
		},
	}
}

// newJobMetadata returns the metadata of the attempt's Job: the SessionRunner's, completed by the operator's.
func (b *objectBuilder) newJobMetadata() metav1.ObjectMeta {
	own := childMetadata(b.session, b.status.Job)
	labels, annotations := map[string]string{}, map[string]string{}
	if m := b.settings.runner.Spec.JobMetadata; m != nil {
		maps.Copy(labels, m.Labels)
		maps.Copy(annotations, m.Annotations)
	}
	maps.Copy(labels, own.Labels)
	decision.SetScheduleLabel(labels, b.session)
	annotations[AnnotationRun] = strconv.Itoa(int(b.status.Run))
	annotations[AnnotationAttempt] = strconv.Itoa(int(b.status.Attempt))
	own.Labels, own.Annotations = labels, annotations
	return own
}

// newDryRunPod returns the Pod that the Job will create, for a dry run.
func (b *objectBuilder) newDryRunPod(template *corev1.PodTemplateSpec) *corev1.Pod {
	meta := metav1.ObjectMeta{
		GenerateName: b.status.Job + "-", Namespace: b.session.Namespace,
		Labels: template.Labels, Annotations: template.Annotations, OwnerReferences: childMetadata(b.session, "").OwnerReferences,
	}
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta, Spec: *template.Spec.DeepCopy()}
}
