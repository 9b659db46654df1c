package decision

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Class is the meaning of an error of the API server. Callers decide only what to do about each class.
type Class string

// The classes.
const (
	// None is the class of a nil error.
	None Class = ""
	// PermissionMissing means that the request was not authenticated or not authorized: an administrator has to grant the
	// operator a permission.
	PermissionMissing Class = "PermissionMissing"
	// PolicyDenied means that an admission webhook, a ValidatingAdmissionPolicy, PodSecurity, a LimitRange, or the plugin for
	// RuntimeClasses or PriorityClasses refused the object.
	PolicyDenied Class = "PolicyDenied"
	// ServiceAccountMissing means that the Pod's ServiceAccount does not exist. It may be created later.
	ServiceAccountMissing Class = "ServiceAccountMissing"
	// QuotaExceeded means that a ResourceQuota does not admit the object now.
	QuotaExceeded Class = "QuotaExceeded"
	// NamespaceTerminating means that the namespace is being deleted: nothing can be created in it any more.
	NamespaceTerminating Class = "NamespaceTerminating"
	// Invalid means that the API server will never accept the object unchanged.
	Invalid Class = "Invalid"
	// Conflict means that the object changed since it was read.
	Conflict Class = "Conflict"
	// NotFound means that the object, its namespace or its kind does not exist.
	NotFound Class = "NotFound"
	// AlreadyExists means that another object has the name.
	AlreadyExists Class = "AlreadyExists"
	// Expired means that a resourceVersion or a continue token is too old.
	Expired Class = "Expired"
	// Timeout means that the request took too long.
	Timeout Class = "Timeout"
	// Unavailable is the class of all other errors: the request may succeed later.
	Unavailable Class = "Unavailable"
)

// ClassOf returns the class of an error, which may be wrapped. It reads the reason, the causes and the code of the error's
// status, and the message only where Kubernetes offers nothing else.
func ClassOf(err error) Class {
	message, status := "", apierrors.APIStatus(nil) // empty if the error did not come from the API server
	if errors.As(err, &status) {
		message = status.Status().Message
	}
	// context.DeadlineExceeded, and network timeouts.
	timeout := interface{ Timeout() bool }(nil)
	isTimeout := errors.As(err, &timeout) && timeout.Timeout()
	// A webhook or a ValidatingAdmissionPolicy chooses its own reason and code (a policy's default is Invalid). Other errors about a webhook,
	// such as a failed call, have other messages.
	isDenied := strings.HasPrefix(message, `admission webhook "`) && strings.Contains(message, `" denied the request`) ||
		strings.HasPrefix(message, "policy '") && strings.Contains(message, "' denied request: ") ||
		strings.HasPrefix(causeOf(message), "ValidatingAdmissionPolicy '")
	// A server-side apply with a field that the API server does not know fails with the code 500 and no reason.
	isUndeclaredField := strings.HasPrefix(message, "failed to create typed patch object (") &&
		strings.HasSuffix(message, ": field not declared in schema")
	switch {
	case err == nil:
		return None
	case isDenied:
		return PolicyDenied
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return NamespaceTerminating
	case apierrors.IsConflict(err):
		return Conflict
	case apierrors.IsNotFound(err):
		return NotFound
	case apierrors.IsAlreadyExists(err):
		return AlreadyExists
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return Expired
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), isTimeout:
		return Timeout
	case apierrors.IsUnauthorized(err):
		return PermissionMissing
	// The object refers to another object by an impossible name. Admission plugins that read the other object fail before the
	// API server validates the name: RuntimeClass with the code 500 and no reason, ServiceAccount with Forbidden.
	case strings.Contains(message, `invalid resource name "`):
		return Invalid
	case apierrors.IsForbidden(err):
		return ClassOfForbidden(message)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), isUndeclaredField:
		return Invalid
	}
	return Unavailable
}

// refusals are classes that only the message distinguishes: the API server answers Forbidden to a missing permission, an
// exceeded quota and a denied policy alike. The integration test provokes each row on a real API server, except where marked.
var refusals = []struct {
	// prefix of the message after " is forbidden: ".
	prefix string
	class  Class
}{
	// Plugin ResourceQuota. The third row names a resource that the object must specify; the fourth row needs a quota
	// configuration of the API server and is not provoked.
	{"exceeded quota: ", QuotaExceeded},
	{"status unknown for quota: ", QuotaExceeded},
	{"failed quota: ", QuotaExceeded},
	{"insufficient quota to ", QuotaExceeded},
	// Plugins PodSecurity and LimitRanger.
	{"violates PodSecurity ", PolicyDenied},
	{"minimum ", PolicyDenied},
	{"maximum ", PolicyDenied},
	{"cpu max limit to request ratio ", PolicyDenied},
	{"memory max limit to request ratio ", PolicyDenied},
	// Plugins RuntimeClass and Priority.
	{"pod rejected: ", PolicyDenied},
	{"conflict: runtimeClass.", PolicyDenied},
	{"no PriorityClass with name ", PolicyDenied},
	// Plugin ServiceAccount.
	{"error looking up service account ", ServiceAccountMissing},
	// Any plugin while the API server starts. Not provoked.
	{"not yet ready to handle request", Unavailable},
}

// ClassOfForbidden returns the class of the message of a Forbidden error, also of a message that another controller copied into
// a condition. It returns PermissionMissing for a message that is not in the table, such as messages of authorizers and of the
// RBAC escalation check.
func ClassOfForbidden(message string) Class {
	cause := strings.TrimPrefix(causeOf(message), "[") // LimitRanger lists several violations in brackets
	for _, refusal := range refusals {
		if strings.HasPrefix(cause, refusal.prefix) {
			return refusal.class
		}
	}
	return PermissionMissing
}

// causeOf returns the text after the name of the object in the message of a Forbidden error.
func causeOf(message string) string {
	_, cause, _ := strings.Cut(message, " is forbidden: ")
	return cause
}
