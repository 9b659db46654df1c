package v1alpha1

// Source is where to read the backlog of workers that consume no Queue. Exactly one field must be
// set.
//
// +kubebuilder:validation:ExactlyOneOf=redis;rabbitMQ;natsJetStream;prometheus;external
type Source struct {
	// redis counts the entries of a list or stream in Redis or Valkey.
	// +optional
	Redis *RedisSource `json:"redis,omitempty"`
	// rabbitMQ counts the ready and unacknowledged messages of a RabbitMQ queue.
	// +optional
	RabbitMQ *RabbitMQSource `json:"rabbitMQ,omitempty"`
	// natsJetStream counts the undelivered and unacknowledged messages of an existing consumer.
	// +optional
	NATSJetStream *NATSJetStreamSource `json:"natsJetStream,omitempty"`
	// prometheus evaluates a PromQL query.
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`
	// external queries a KEDA external scaler over gRPC.
	// +optional
	External *ExternalSource `json:"external,omitempty"`
}

// RedisSource counts the entries of a list, or those of a stream that a consumer group has not finished.
type RedisSource struct {
	BrokerAccess `json:",inline"`

	// sentinel finds the server through Sentinels.
	// +optional
	Sentinel *RedisSentinel `json:"sentinel,omitempty"`

	// key of the list or stream.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`

	// group is the consumer group of a stream. Unset means that the key is a list.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Group string `json:"group,omitempty"`
}

// RabbitMQSource counts the messages of a queue through RabbitMQ's management API.
type RabbitMQSource struct {
	BrokerAccess `json:",inline"`

	// vhost is the virtual host of the queue. Defaults to /.
	// +optional
	// +kubebuilder:default=/
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	VHost string `json:"vhost,omitempty"`

	// queue is the name of the queue.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Queue string `json:"queue"`
}

// NATSJetStreamSource counts the messages of an existing JetStream consumer. The fields have the names
// that they have in the trigger nats-jetstream of KEDA.
type NATSJetStreamSource struct {
	BrokerAccess `json:",inline"`

	// nats has settings of the connection.
	// +optional
	NATS *NATSConnection `json:"nats,omitempty"`

	// stream is the name of the stream.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^\s.*>/\\]+$`
	Stream string `json:"stream"`

	// consumer is the name of a pull or push consumer.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^\s.*>/\\]+$`
	Consumer string `json:"consumer"`
}

// PrometheusSource evaluates PromQL queries. Each query must return exactly one value. An empty
// result is an error, not 0.
type PrometheusSource struct {
	BrokerAccess `json:",inline"`

	// query returns the number of waiting messages.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`

	// inFlightQuery returns the number of messages in flight. Unset means the numbers that the workers report.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	InFlightQuery string `json:"inFlightQuery,omitempty"`

	// arrivalsQuery returns a counter of received messages. Unset means scaling by backlog only.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ArrivalsQuery string `json:"arrivalsQuery,omitempty"`
}

// ExternalSource queries a program that implements the protocol of KEDA's external scalers.
type ExternalSource struct {
	// address of the program, as host:port.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^/\s]+:[0-9]{1,5}$`
	Address string `json:"address"`

	// metadata for the program, as in the trigger of a ScaledObject, at most 32 entries.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Metadata map[string]string `json:"metadata,omitempty"`

	// tlsSecretRef is a Secret with ca.crt, and tls.crt and tls.key for a client certificate. Unset means no TLS.
	// +optional
	TLSSecretRef *LocalReference `json:"tlsSecretRef,omitempty"`
}
