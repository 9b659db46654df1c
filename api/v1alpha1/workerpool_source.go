package v1alpha1

// Source is where to read how much waits, without a Queue. Exactly one is given.
//
// +kubebuilder:validation:ExactlyOneOf=redisList;redisStream;rabbitMQ;prometheus;external
type Source struct {
	// redisList counts the entries of a list.
	// +optional
	RedisList *RedisListSource `json:"redisList,omitempty"`
	// redisStream counts what a consumer group has not read or not acknowledged.
	// +optional
	RedisStream *RedisStreamSource `json:"redisStream,omitempty"`
	// rabbitMQ counts a queue's messages, ready and unacknowledged.
	// +optional
	RabbitMQ *RabbitMQSource `json:"rabbitMQ,omitempty"`
	// prometheus asks a query.
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`
	// external asks a KEDA external scaler over gRPC.
	// +optional
	External *ExternalSource `json:"external,omitempty"`
}

// RedisListSource counts the entries of a list in Redis or Valkey.
type RedisListSource struct {
	BrokerAccess `json:",inline"`

	// key of the list.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
}

// RedisStreamSource counts what a consumer group has not finished of a stream.
type RedisStreamSource struct {
	BrokerAccess `json:",inline"`

	// key of the stream.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`

	// group of consumers.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Group string `json:"group"`
}

// RabbitMQSource counts a queue's messages, through RabbitMQ's management API.
type RabbitMQSource struct {
	BrokerAccess `json:",inline"`

	// vhost of the queue.
	// +optional
	// +kubebuilder:default=/
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	VHost string `json:"vhost,omitempty"`

	// queue by its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Queue string `json:"queue"`
}

// PrometheusSource asks Prometheus. Each query must give one number; no result is an
// error, not 0.
type PrometheusSource struct {
	BrokerAccess `json:",inline"`

	// query for how much waits.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`

	// inFlightQuery for how much is being worked on. Left out: the workers are asked.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	InFlightQuery string `json:"inFlightQuery,omitempty"`

	// arrivalsQuery for how much has come since ever, a counter. Left out: the pool is scaled
	// by what waits alone.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ArrivalsQuery string `json:"arrivalsQuery,omitempty"`
}

// ExternalSource asks a program that speaks the protocol of KEDA's external scalers.
type ExternalSource struct {
	// address of the program, host:port.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^/\s]+:[0-9]{1,5}$`
	Address string `json:"address"`

	// metadata it is given, as a ScaledObject's trigger would.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Metadata map[string]string `json:"metadata,omitempty"`

	// tlsSecretRef is a secret with ca.crt, and tls.crt and tls.key if the program asks for
	// a client's certificate. Left out: no TLS.
	// +optional
	TLSSecretRef *SecretRef `json:"tlsSecretRef,omitempty"`
}
