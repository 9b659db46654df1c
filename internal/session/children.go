package session

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// children are what the attempt's Job needs, in the order in which they are made: nothing
// of a session runs before its network is closed.
func (d *evaluation) children(inputs *corev1.Secret) []Object {
	s, runner := d.observation.Session, d.resolved.runner
	objects := []Object{d.serviceAccount(), buildNetworkPolicy(s, runner), inputs}
	if d.resolved.persistent && s.Spec.ContinueFrom == nil {
		objects = append(objects, d.claim())
	}
	if s.Spec.Interactive {
		objects = append(objects, d.service())
	}
	if runner.Spec.ActivityLease {
		objects = append(objects, d.lease(), d.role(), d.roleBinding())
	}
	return objects
}

// guards are the children that must stay as they are while a Job runs.
func (d *evaluation) guards() []Object {
	if d.observation.Runner == nil { // it stays as it was
		return nil
	}
	return []Object{buildNetworkPolicy(d.observation.Session, d.observation.Runner)}
}

func (d *evaluation) serviceAccount() Object {
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   childMetadata(d.observation.Session, sharedName(d.observation.Session.Name)),
		AutomountServiceAccountToken: new(false),
	}
}

// claim is the session's workspace. One that is to be kept has no owner, so that the
// garbage collector leaves it; its label says whose it is.
func (d *evaluation) claim() Object {
	s := d.observation.Session
	claim := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: childMetadata(s, ClaimName(s.Name)),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: d.resolved.class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: d.resolved.size}},
		},
	}
	if s.Spec.Workspace != nil && s.Spec.Workspace.Retain {
		claim.OwnerReferences = nil
	}
	return claim
}

func (d *evaluation) service() Object {
	s := d.observation.Session
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: childMetadata(s, ServiceName(s.Name)),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: map[string]string{LabelSessionUID: string(s.UID)},
			Ports: []corev1.ServicePort{{
				Name: sessionPortName, Port: d.port(), TargetPort: intstr.FromString(sessionPortName), Protocol: corev1.ProtocolTCP,
			}},
		},
	}
}

// lease is where the runner shows that it is at work. What it writes there is its own.
func (d *evaluation) lease() Object {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: childMetadata(d.observation.Session, LeaseName(d.observation.Session.Name)),
	}
}

// role allows the runner its own Lease, and nothing else.
func (d *evaluation) role() Object {
	s := d.observation.Session
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: childMetadata(s, sharedName(s.Name)),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"},
			ResourceNames: []string{LeaseName(s.Name)}, Verbs: []string{"get", "update", "patch"},
		}},
	}
}

func (d *evaluation) roleBinding() Object {
	s := d.observation.Session
	name := sharedName(s.Name)
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: childMetadata(s, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: s.Namespace}},
	}
}

// job is the attempt's Job. It ends by itself when the session's time is up.
func (d *evaluation) job(template *corev1.PodTemplateSpec) *batchv1.Job {
	meta := childMetadata(d.observation.Session, d.status.Job)
	meta.Annotations = map[string]string{
		AnnotationRun:     strconv.Itoa(int(d.status.Run)),
		AnnotationAttempt: strconv.Itoa(int(d.status.Attempt)),
	}
	job := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			Parallelism:          new(int32(1)),
			Completions:          new(int32(1)),
			BackoffLimit:         new(int32(0)),
			PodReplacementPolicy: new(batchv1.Failed),
			Template:             *template,
		},
	}
	if left, limited := d.left(); limited {
		job.Spec.ActiveDeadlineSeconds = new(left)
	}
	return job
}

// trial is what the Job will make, to be tried first.
func (d *evaluation) trial(template *corev1.PodTemplateSpec) *corev1.Pod {
	meta := metav1.ObjectMeta{
		GenerateName: d.status.Job + "-", Namespace: d.observation.Session.Namespace,
		Labels: template.Labels, OwnerReferences: childMetadata(d.observation.Session, "").OwnerReferences,
	}
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta, Spec: *template.Spec.DeepCopy()}
}

// left is how long the session may still run; false if that has no end.
func (d *evaluation) left() (seconds int64, limited bool) {
	allowed := int64(secondsOrDefault(d.observation.Session.Spec.Timeout, defaultTimeoutSeconds))
	if runner := d.observation.Runner; runner != nil && runner.Spec.ActiveDeadlineSeconds != nil {
		if most := *runner.Spec.ActiveDeadlineSeconds; allowed == 0 || most < allowed {
			allowed = most
		}
	}
	if allowed == 0 {
		return 0, false
	}
	return max(allowed-d.status.ActiveSeconds, 0), true
}
