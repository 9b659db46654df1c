package agenticsession

import (
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

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

// pushBranch returns the branch to which a session pushes by default. Sessions of several namespaces and clusters can have one
// repository, and a deleted session can have left its branch, so the name has a part of the UID.
func pushBranch(s *v1alpha1.AgenticSession) v1alpha1.GitBranch {
	const uidLength = 8
	return v1alpha1.GitBranch("session/" + s.Name + "-" + string(s.UID[:min(len(s.UID), uidLength)]))
}

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
