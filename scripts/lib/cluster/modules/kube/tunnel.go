package main

import (
	"io"
	"log"
	"net"
	"os"
	"strconv"
)

// tunnel FILE ADDRESS accepts connections on the listening socket that it got as an open file and passes them on. A
// socket stays in the network namespace where it was made, and this process dials in its own: that is how the machine's
// loopback reaches a control plane in a namespace, with no link between the two.
func tunnel() {
	file, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	door, err := net.FileListener(os.NewFile(uintptr(file), "door"))
	if err != nil {
		log.Fatalf("file %d is no listening socket: %v", file, err)
	}
	for {
		caller, err := door.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go pass(caller.(*net.TCPConn), os.Args[2])
	}
}

func pass(caller *net.TCPConn, address string) {
	defer caller.Close()
	reached, err := net.Dial("tcp", address)
	if err != nil {
		log.Print(err)
		return
	}
	defer reached.Close()
	answered := make(chan struct{})
	go func() {
		io.Copy(caller, reached)
		caller.CloseWrite()
		close(answered)
	}()
	io.Copy(reached, caller)
	reached.(*net.TCPConn).CloseWrite()
	<-answered
}
