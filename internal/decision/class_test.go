package decision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yardmaster/yardmaster/test/require"
)

var pods = schema.GroupResource{Resource: "pods"}

func forbidden(cause string) *apierrors.StatusError {
	return apierrors.NewForbidden(pods, "a", errors.New(cause))
}

func withReason(err *apierrors.StatusError, reason metav1.StatusReason, code int32) error {
	err.ErrStatus.Reason, err.ErrStatus.Code = reason, code
	return err
}

func statusError(reason metav1.StatusReason, code int32, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Reason: reason, Code: code, Message: message,
	}}
}

func terminatingNamespace() error {
	err := forbidden("unable to create new content in namespace ns because it is being terminated")
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// The messages are those of a real API server, which test/integration compares them with.
func TestClassOfErrors(t *testing.T) {
	for title, test := range map[string]struct {
		err  error
		want Class
	}{
		"no error": {nil, None},

		"missing permission":     {forbidden(`User "jane" cannot create resource "pods" in API group "" in the namespace "ns"`), PermissionMissing},
		"grant escalation":       {forbidden(`user "jane" (groups=["dev"]) is attempting to grant RBAC permissions not currently held:`), PermissionMissing},
		"unknown refusal":        {forbidden("something new"), PermissionMissing},
		"forbidden, no details":  {statusError(metav1.StatusReasonForbidden, http.StatusForbidden, "forbidden"), PermissionMissing},
		"permission named quota": {forbidden(`User "exceeded quota: " cannot create resource "pods"`), PermissionMissing},

		"quota without room":              {forbidden("exceeded quota: pods, requested: pods=1, used: pods=1, limited: pods=1"), QuotaExceeded},
		"new quota":                       {forbidden("status unknown for quota: pods, resources: pods"), QuotaExceeded},
		"quota on an unset resource":      {forbidden("failed quota: cpu: must specify limits.cpu for: main"), QuotaExceeded},
		"quota required, but none exists": {forbidden("insufficient quota to consume: pods"), QuotaExceeded},

		"PodSecurity":                                   {forbidden(`violates PodSecurity "restricted:latest": privileged`), PolicyDenied},
		"LimitRange with a minimum":                     {forbidden("minimum cpu usage per Container is 1, but request is 500m"), PolicyDenied},
		"LimitRange with a maximum":                     {forbidden("maximum cpu usage per Container is 1, but limit is 2"), PolicyDenied},
		"LimitRange with a ratio":                       {forbidden("cpu max limit to request ratio per Container is 1, but provided ratio is 2.000000"), PolicyDenied},
		"LimitRange with several limits":                {forbidden("[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Gi]"), PolicyDenied},
		"RuntimeClass does not exist":                   {forbidden(`pod rejected: RuntimeClass "gvisor" not found`), PolicyDenied},
		"RuntimeClass conflicts with the node selector": {forbidden("conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c"), PolicyDenied},
		"PriorityClass does not exist":                  {forbidden("no PriorityClass with name urgent was found"), PolicyDenied},
		"policy that denies as Forbidden":               {forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), PolicyDenied},
		"policy that denies as Invalid":                 {withReason(forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), metav1.StatusReasonInvalid, 422), PolicyDenied},
		"policy that denies as too large":               {withReason(forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), metav1.StatusReasonRequestEntityTooLarge, 413), PolicyDenied},
		"policy without its parameters":                 {statusError(metav1.StatusReasonForbidden, 403, "policy 'p' with binding 'b' denied request: failed to configure binding: no params found"), PolicyDenied},
		"webhook that denies as Forbidden":              {statusError(metav1.StatusReasonForbidden, 403, `admission webhook "w.example.com" denied the request: no`), PolicyDenied},
		"webhook that denies as Conflict":               {statusError(metav1.StatusReasonConflict, 409, `admission webhook "w.example.com" denied the request: no`), PolicyDenied},
		"webhook that denies without a reason":          {statusError("", 400, `admission webhook "w.example.com" denied the request without explanation`), PolicyDenied},
		"webhook that does not support dry run":         {apierrors.NewBadRequest(`admission webhook "w.example.com" does not support dry run`), Invalid},
		"webhook that cannot be called":                 {apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": connection refused`)), Unavailable},

		"service account not created yet": {forbidden(`error looking up service account ns/default: serviceaccount "default" not found`), ServiceAccountMissing},
		"API server is starting":          {forbidden("not yet ready to handle request"), Unavailable},

		"terminating namespace": {terminatingNamespace(), NamespaceTerminating},
		"invalid":               {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), Invalid},
		"message that begins like that of a policy":            {statusError(metav1.StatusReasonConflict, 409, "policy 'p' has changed"), Conflict},
		"message that begins like that of an undeclared field": {statusError("", 500, "failed to create typed patch object (ns/a): out of memory"), Unavailable},
		"undeclared field": {&apierrors.StatusError{ErrStatus: metav1.Status{
			Code: 500, Message: "failed to create typed patch object (ns/a; apps/v1, Kind=Deployment): .spec.x: field not declared in schema",
		}}, Invalid},
		"RuntimeClass with an invalid name": {&apierrors.StatusError{ErrStatus: metav1.Status{
			Code: 500, Message: `invalid resource name "a/b": [may not contain '/']`,
		}}, Invalid},
		"service account with an invalid name": {forbidden(`error looking up service account ns/a/b: invalid resource name "a/b": [may not contain '/']`), Invalid},
		"bad request":                          {apierrors.NewBadRequest("unknown field"), Invalid},
		"object too large":                     {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), Invalid},
		"conflict":                             {apierrors.NewConflict(pods, "a", errors.New("changed")), Conflict},
		"not found":                            {apierrors.NewNotFound(pods, "a"), NotFound},
		"already exists":                       {apierrors.NewAlreadyExists(pods, "a"), AlreadyExists},
		"expired token":                        {apierrors.NewResourceExpired("too old"), Expired},
		"old resourceVersion":                  {apierrors.NewResourceExpired("too old resource version"), Expired},
		"timeout":                              {apierrors.NewTimeoutError("slow", 1), Timeout},
		"server timeout":                       {apierrors.NewServerTimeout(pods, "list", 1), Timeout},
		"deadline":                             {context.DeadlineExceeded, Timeout},
		"too many requests":                    {apierrors.NewTooManyRequests("busy", 1), Unavailable},
		"not ready":                            {apierrors.NewServiceUnavailable("starting"), Unavailable},
		"not authenticated":                    {apierrors.NewUnauthorized("unknown token"), PermissionMissing},
		"network timeout":                      {&net.DNSError{IsTimeout: true}, Timeout},
		"connection refused":                   {errors.New("connection refused"), Unavailable},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, test.want, ClassOf(test.err))
			if test.err == nil {
				return
			}
			require.Equal(t, test.want, ClassOf(fmt.Errorf("creating the Pod: %w", test.err)))
		})
	}
}
