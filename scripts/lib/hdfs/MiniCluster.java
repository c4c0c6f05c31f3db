import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * A real HDFS on this machine's loopback: MiniCluster FOLDER [NAME=VALUE …]. Prints its port, ends when standard input does.
 * Names beginning with "login." are no settings of Hadoop: the principal and the keytab that its servers log in with.
 */
public class MiniCluster {
    public static void main(String[] words) throws Exception {
        Configuration settings = new HdfsConfiguration();
        String principal = null, keytab = null;
        for (int at = 1; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            if (pair[0].equals("login.principal")) principal = pair[1];
            else if (pair[0].equals("login.keytab")) keytab = pair[1];
            else settings.set(pair[0], pair[1]);
        }
        UserGroupInformation.setConfiguration(settings);
        if (principal != null) UserGroupInformation.loginUserFromKeytab(principal, keytab);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings, new File(words[0]))
            .numDataNodes(1).format(true).checkDataNodeHostConfig(false).build();
        cluster.waitActive();
        cluster.getFileSystem().setPermission(new org.apache.hadoop.fs.Path("/"), new FsPermission((short) 0777));
        System.out.println("port " + cluster.getNameNodePort());
        System.out.flush();
        while (System.in.read() >= 0) { }
        System.exit(0); // its folder is removed by whoever started it
    }
}
