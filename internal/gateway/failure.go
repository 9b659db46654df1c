package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
)

// The reasons of failures other than failed connections to a Queue's broker.
const (
	reasonInvalidRequest    = "InvalidRequest"
	reasonInvalidJob        = "InvalidJob"
	reasonUnauthenticated   = "Unauthenticated"
	reasonForbidden         = "Forbidden"
	reasonNotFound          = "NotFound"
	reasonQueueNotFound     = "QueueNotFound"
	reasonNamespaceNotFound = "NamespaceNotServed"
	reasonJobNotDelayed     = "JobNotDelayed"
	reasonMethodNotAllowed  = "MethodNotAllowed"
	reasonKeyTaken          = "KeyTaken"
	reasonQueueDraining     = "QueueDraining"
	reasonTooLarge          = "TooLarge"
	reasonUnknownPriority   = "UnknownPriority"
	reasonUnsupported       = "Unsupported"
	reasonQueueFull         = "QueueFull"
	reasonTooManyRequests   = "TooManyRequests"
	reasonQueueNotReady     = "QueueNotReady"
	reasonBrokerUnavailable = "BrokerUnavailable"
	reasonAPIUnavailable    = "APIServerUnavailable"
)

// retrySeconds is how long a client waits before it tries again.
const retrySeconds = 1

// failure is why a request, or one of its jobs, was not accepted.
type failure struct {
	status int
	// Reason is for programs.
	Reason string `json:"reason"`
	// Field of the job or parameter of the request that caused the failure; otherwise empty.
	Field string `json:"field,omitempty"`
	// KeyHolder is the ID of the job that has the unique key, if the reason is reasonKeyTaken.
	KeyHolder string `json:"keyHolder,omitempty"`
	// Message for people.
	Message string `json:"message"`
}

func (f *failure) Error() string { return f.Message }

func fail(status int, reason, message string) *failure {
	return &failure{status: status, Reason: reason, Message: message}
}

func invalid(field, message string) *failure {
	return &failure{status: http.StatusBadRequest, Reason: reasonInvalidRequest, Field: field, Message: field + " " + message}
}

// asFailure converts an error to a failure for the client.
func asFailure(err error) *failure {
	if known := (*failure)(nil); errors.As(err, &known) {
		return known
	}
	if size := (*http.MaxBytesError)(nil); errors.As(err, &size) {
		return fail(http.StatusRequestEntityTooLarge, reasonTooLarge, "the body has more than "+strconv.FormatInt(size.Limit, 10)+" bytes")
	}
	if sending := (*broker.SendError)(nil); errors.As(err, &sending) {
		for _, known := range sendFailures {
			if errors.Is(sending.Failure, known.err) {
				return &failure{
					status: known.status, Reason: known.reason, Field: sending.Field, KeyHolder: sending.KeyHolder, Message: sending.Error(),
				}
			}
		}
		// Other failures, such as a login that the broker rejects, are no fault of the request.
		return fail(http.StatusServiceUnavailable, reasonBrokerUnavailable, sending.Error())
	}
	if connection := (*brokeraccess.ConnectionError)(nil); errors.As(err, &connection) {
		return fail(http.StatusServiceUnavailable, connection.Reason, "the gateway cannot use the broker of the Queue: "+connection.Error())
	}
	if errors.Is(err, brokerconn.ErrConnecting) {
		return fail(http.StatusServiceUnavailable, reasonBrokerUnavailable, "the gateway is connecting to the broker of the Queue")
	}
	return fail(http.StatusServiceUnavailable, reasonBrokerUnavailable, err.Error())
}

// sendFailures are the responses to failures of a broker.
var sendFailures = []struct {
	err    error
	status int
	reason string
}{
	{broker.ErrInvalidJob, http.StatusBadRequest, reasonInvalidJob},
	{broker.ErrUnknownPriority, http.StatusBadRequest, reasonUnknownPriority},
	{broker.ErrUnsupported, http.StatusBadRequest, reasonUnsupported},
	{broker.ErrKeyTaken, http.StatusConflict, reasonKeyTaken},
	{broker.ErrDraining, http.StatusConflict, reasonQueueDraining},
	{broker.ErrPayloadTooLarge, http.StatusRequestEntityTooLarge, reasonTooLarge},
	{broker.ErrQueueFull, http.StatusTooManyRequests, reasonQueueFull},
	// The Queue exists and was ready, so its queue is being created again or removed.
	{broker.ErrUnknownQueue, http.StatusServiceUnavailable, reasonQueueNotReady},
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	raw, err := json.Marshal(body)
	if err != nil { // the types of responses have no value that cannot be encoded
		status, raw = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n'))
}
