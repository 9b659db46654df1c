// Package apierror classifies errors of the API server. It is the only place that answers what
// such an error means; callers decide only what to do about each class. It needs no client.
package apierror

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Class is what an error of the API server means to its caller.
type Class string

// The classes.
const (
	// None is the class of a nil error.
	None Class = ""
	// PermissionMissing means that the authorizer refused the request: the operator lacks a
	// permission. An administrator has to grant it.
	PermissionMissing Class = "PermissionMissing"
	// PolicyDenied means that an admission webhook, a ValidatingAdmissionPolicy, PodSecurity
	// or a LimitRange refused the object.
	PolicyDenied Class = "PolicyDenied"
	// QuotaExceeded means that a ResourceQuota has no room for the object now.
	QuotaExceeded Class = "QuotaExceeded"
	// NamespaceTerminating means that the namespace is being deleted: nothing can be created
	// in it any more.
	NamespaceTerminating Class = "NamespaceTerminating"
	// Invalid means that the API server will never accept the object as it is.
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
	// Unavailable is the class of everything else: the request may succeed later.
	Unavailable Class = "Unavailable"
)

// ClassOf returns the class of an error, which may be wrapped. It looks at the status's
// reason, causes and code first, and at its message only where the API server offers nothing
// else: see refusals.
func ClassOf(err error) Class {
	switch {
	case err == nil:
		return None
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
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return Unavailable
	}
	switch message := status.Status().Message; {
	case strings.HasPrefix(message, deniedByWebhook):
		return PolicyDenied
	case apierrors.IsForbidden(err):
		return classOfForbidden(message)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return Invalid
	}
	return Unavailable
}

// deniedByWebhook begins the message of a request that a webhook denied, whose code the webhook
// chooses. A webhook that cannot be called has another message: that is Unavailable.
const deniedByWebhook = `admission webhook "`

// refusals are the refusals that only the message distinguishes: the API server answers
// Forbidden to a missing permission, an exceeded quota and a denied policy alike. Each row is
// tested against a real API server.
var refusals = []struct {
	// prefix of the message, or of what follows " is forbidden: " in it.
	prefix string
	class  Class
}{
	// Plugin ResourceQuota.
	{"exceeded quota: ", QuotaExceeded},
	{"status unknown for quota: ", QuotaExceeded},
	{"failed quota: ", QuotaExceeded},
	// Plugins ValidatingAdmissionPolicy, PodSecurity and LimitRanger.
	{"ValidatingAdmissionPolicy '", PolicyDenied},
	{"violates PodSecurity ", PolicyDenied},
	{"minimum ", PolicyDenied},
	{"maximum ", PolicyDenied},
	// Plugin RuntimeClass.
	{"pod rejected: ", PolicyDenied},
	// Authorizers, and the check that nobody grants permissions they do not have.
	{`User "`, PermissionMissing},
	{`user "`, PermissionMissing},
}

// classOfForbidden returns PermissionMissing for a message that is not in the table.
func classOfForbidden(message string) Class {
	if _, cause, found := strings.Cut(message, " is forbidden: "); found {
		message = cause
	}
	for _, refusal := range refusals {
		if strings.HasPrefix(message, refusal.prefix) {
			return refusal.class
		}
	}
	return PermissionMissing
}
